//! Where the figures of a daemon are shown.

use serde::Deserialize;
use weir_access::{Listen, Tls};

use super::ConfigError;

/// `[metrics]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// The addresses of the metrics; none without any.
    pub listen: Vec<Listen>,
    /// They may be reached from other hosts.
    pub insecure: bool,
}

impl Metrics {
    /// The addresses as they are to be opened.
    ///
    /// # Errors
    /// An option that has no meaning here.
    pub fn addresses(&self) -> Result<Vec<Listen>, ConfigError> {
        let checked = |listen: &Listen| {
            if listen.tls != Tls::default() || listen.allow.names().next().is_some() {
                let what = "metrics are served without TLS: no tls option, and no allow=tls:NAME";
                return Err(ConfigError(format!("address {}: {what}", listen.address)));
            }
            Ok(Listen { insecure: listen.insecure || self.insecure, ..listen.clone() })
        };
        self.listen.iter().map(checked).collect()
    }
}
