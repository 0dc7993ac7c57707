//! The terms of a server: what a handshake may grant.

/// The options that a server lets clients negotiate, and the bounds of its patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Grant STRUCTURED_REPLY.
    pub structured: bool,
    /// Grant EXTENDED_HEADERS.
    pub extended: bool,
    /// The rule for STARTTLS, and for clients that do not ask for it.
    pub tls: Tls,
    /// Options one client may send; with the next one the session ends.
    pub options_max: u32,
    /// Longest option data that is dropped and answered with an error, in bytes. Longer data ends
    /// the session. Data above [`OPTION_DATA_MAX`] is never kept, whatever this says.
    ///
    /// [`OPTION_DATA_MAX`]: crate::wire::OPTION_DATA_MAX
    pub skip_max: u32,
}

impl Default for Settings {
    /// Everything granted but TLS; 1000 options; 1 MiB dropped.
    fn default() -> Self {
        let tls = Tls::Off;
        Self { structured: true, extended: true, tls, options_max: 1000, skip_max: 1 << 20 }
    }
}

/// A server's rule for TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// STARTTLS is refused by policy (NOTLS).
    #[default]
    Off,
    /// STARTTLS is granted to a client that asks for it.
    On,
    /// Nothing else is granted before STARTTLS (FORCEDTLS).
    Require,
}
