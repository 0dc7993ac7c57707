//! Where the figures of a daemon are shown.

use serde::{Deserialize, Deserializer};
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
    /// The names by which they may be asked, beside those that `listen` has.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<String>,
}

fn hosts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(from)?;
    let is_name = |host: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !host.is_empty()
            && host.bytes().all(known)
            && !host.starts_with('.')
            && !host.ends_with('.')
    };
    match hosts.iter().find(|host| !is_name(host)) {
        None => Ok(hosts),
        Some(host) => Err(serde::de::Error::custom(format!(
            "hosts={host:?} is no host name: letters, digits, - and _ with dots between, and no \
             scheme or port"
        ))),
    }
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
