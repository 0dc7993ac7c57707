//! What a daemon begins with: its configuration, and the place of another if it takes one.

use std::path::PathBuf;

use super::{Serve, Signals};
use crate::Failure;
use crate::control::DEFAULT_CONTROL;
use crate::handover::{Aside, Next, Sockets, Takeover};
use crate::reload::{Reload, Stated};

/// The beginning of a daemon.
pub(super) struct Beginning {
    pub(super) stated: Stated,
    pub(super) rules: weir_control::Rules,
    /// Those of the daemon before, if there was one.
    pub(super) sockets: Sockets,
    /// The daemon before, as long as it may still take its place back.
    pub(super) before: Option<Takeover>,
}

impl Beginning {
    /// Reads the configuration, and then takes the place of the running daemon if that is asked
    /// for. `None` for a daemon whose own place was taken.
    pub(super) fn of(serve: &Serve, signals: &Signals) -> Result<Option<Beginning>, Failure> {
        if let Some(aside) = Aside::here()? {
            return match aside.wait(signals.heard()) {
                Next::End => {
                    tracing::info!("another daemon serves in this one's place");
                    Ok(None)
                }
                Next::Stop => Ok(None),
                Next::Serve(configuration, sockets) => {
                    let (stated, rules) =
                        (serve.stated_in(configuration)?, Reload::read_rules(&serve.rules)?);
                    Ok(Some(Beginning { stated, rules, sockets, before: None }))
                }
            };
        }
        let stated = serve.stated()?;
        let rules = Reload::read_rules(&serve.rules)?;
        let mut before = None;
        if serve.replace {
            let control = serve.control.named().unwrap_or_else(|| PathBuf::from(DEFAULT_CONTROL));
            let exports = stated.config.exports().into_iter().map(|export| export.name);
            before = Takeover::ask(&control, &exports.collect::<Vec<_>>())?;
        }
        let taken = before.as_mut().map(|before| std::mem::take(&mut before.sockets));
        Ok(Some(Beginning { stated, rules, sockets: taken.unwrap_or_default(), before }))
    }
}
