//! What sets a variant apart: options of the target, a target of its own, or the kernel's
//! scheduler.

use serde_json::{Map, Value};
use weir::Target;
use weir::target::split_at_commas;

/// One of the things compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What it was given, as documents show it.
    pub options: Value,
    /// Its target.
    pub target: String,
    /// The kernel's own scheduler for the target's device, where that is what is compared.
    pub kernel_scheduler: Option<String>,
}

impl Variant {
    /// A variant of `target` with `options`: `NAME=VALUE,...`, or a whole target.
    ///
    /// # Errors
    /// Which option is wrong, and what would be right.
    pub fn new(name: &str, target: &str, options: &str) -> Result<Variant, String> {
        let whole = is_target(options);
        let (target, shown) = if whole {
            let shown = [(String::from("target"), Value::from(options))];
            (String::from(options), shown.into_iter().collect())
        } else {
            (with(target, options), named(options))
        };
        Target::parse(&target).map_err(|error| format!("variant {name}: {error}"))?;
        let options = Value::Object(shown);
        Ok(Variant { name: String::from(name), options, target, kernel_scheduler: None })
    }

    /// The same variant with one more option, as a sweep gives it.
    ///
    /// # Errors
    /// What the variant says of that option itself, for a sweep would override what sets it apart;
    /// which option is wrong, and what would be right.
    pub fn with(&self, name: &str, value: &str) -> Result<Variant, String> {
        if let Some(own) = self.own(name) {
            return Err(format!("variant {} says {name}={own} itself", self.name));
        }
        let target = with(&self.target, &format!("{name}={value}"));
        Target::parse(&target).map_err(|error| format!("variant {}: {error}", self.name))?;
        let mut varied = Variant { target, ..self.clone() };
        if let Value::Object(options) = &mut varied.options {
            options.insert(String::from(name), Value::from(value));
        }
        Ok(varied)
    }

    /// The value that this variant, and not the target of all, gives an option.
    fn own(&self, option: &str) -> Option<String> {
        if option == "scheduler" && self.kernel_scheduler.is_some() {
            return Some(String::from("none"));
        }
        let said = |options: &Map<String, Value>| {
            options.get(option).and_then(Value::as_str).map(String::from)
        };
        let options = self.options.as_object()?;
        let target = options.get("target").and_then(Value::as_str);
        let behind = target.and_then(|target| Some(target.split_once(',')?.1));
        said(options).or_else(|| said(&named(behind?)))
    }

    /// Whether another variant comes to the same.
    #[must_use]
    pub fn is_like(&self, other: &Variant) -> bool {
        let meant = |variant: &Variant| Target::parse(&variant.target).map(|t| format!("{t:?}"));
        self.kernel_scheduler == other.kernel_scheduler && meant(self) == meant(other)
    }
}

/// Whether this begins with the kind of a target, and not with the name of an option.
#[must_use]
pub fn is_target(options: &str) -> bool {
    let kind = options.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| !kind.is_empty() && !kind.contains(['=', ',', '"']))
}

fn with(target: &str, options: &str) -> String {
    if options.is_empty() { String::from(target) } else { format!("{target},{options}") }
}

fn named(options: &str) -> Map<String, Value> {
    // As the options of some target, for quotes open only behind one.
    let parts = split_at_commas(&format!(",{options}"));
    let parts = parts.iter().skip(1).filter(|part| !part.is_empty());
    let pair = |part: &String| {
        let (name, value) = part.split_once('=').unwrap_or((part, "on"));
        (String::from(name), Value::from(value))
    };
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_put_behind_the_target_and_a_target_takes_its_place() {
        let sq = Variant::new("a", "ram:1M", "queue_mode=sq,scheduler=noop").expect("a variant");
        assert_eq!(sq.target, "ram:1M,queue_mode=sq,scheduler=noop");
        assert_eq!(sq.options, serde_json::json!({"queue_mode": "sq", "scheduler": "noop"}));
        let other = Variant::new("b", "ram:1M", "null:2M,latency_us=5").expect("a variant");
        assert_eq!(other.target, "null:2M,latency_us=5");
        assert_eq!(other.options, serde_json::json!({"target": "null:2M,latency_us=5"}));
        let plain = Variant::new("c", "ram:1M", "").expect("a variant");
        assert_eq!((plain.target.as_str(), &plain.options), ("ram:1M", &serde_json::json!({})));
        let quoted = r#"kernel_cmdline="elevator=noop a:b,c",readonly"#;
        let quoted = Variant::new("d", "ram:1M", quoted).expect("a variant");
        assert_eq!(quoted.options["kernel_cmdline"], r#""elevator=noop a:b,c""#);
        assert_eq!(quoted.options["readonly"], "on");
    }

    #[test]
    fn what_is_wrong_is_named_with_the_variant() {
        let error = Variant::new("b", "ram:1M", "frob=1").expect_err("no such option");
        assert!(error.starts_with("variant b: unknown option \"frob\""), "{error}");
        let error = Variant::new("a", "ram:1M", "disk:1M").expect_err("no such kind");
        assert!(error.contains("variant a: target \"disk:1M\" does not start with"), "{error}");
        let plain = Variant::new("a", "ram:1M", "").expect("a variant");
        assert!(plain.with("nr_requests", "3").is_err_and(|e| e.contains("4..=2048")));
        let eight = plain.with("nr_requests", "8").expect("it fits");
        assert_eq!(eight.target, "ram:1M,nr_requests=8");
        assert_eq!(eight.options, serde_json::json!({"nr_requests": "8"}));
    }

    #[test]
    fn a_sweep_does_not_override_what_sets_a_variant_apart() {
        for options in ["scheduler=bfq,nomerges=1", "null:1M,nomerges=1,scheduler=bfq"] {
            let variant = Variant::new("b", "ram:1M", options).expect("a variant");
            let error = variant.with("scheduler", "none").expect_err("it is bfq");
            assert_eq!(error, "variant b says scheduler=bfq itself");
            assert!(variant.with("nr_requests", "8").is_ok(), "{options}");
        }
        // What the target of all says is not what sets one apart.
        let plain = Variant::new("a", "ram:1M,nr_requests=4", "").expect("a variant");
        assert!(plain.with("nr_requests", "8").is_ok());
        let bfq = Variant { kernel_scheduler: Some(String::from("bfq")), ..plain };
        assert!(bfq.with("scheduler", "kyber").is_err_and(|e| e.contains("scheduler=none")));
    }

    #[test]
    fn variants_are_alike_when_they_come_to_the_same() {
        let variant = |options| Variant::new("x", "ram:1MiB", options).expect("a variant");
        assert!(variant("nr_requests=8").is_like(&variant("nr_requests=08")));
        assert!(variant("").is_like(&variant("ram:1024KiB")));
        assert!(!variant("nr_requests=8").is_like(&variant("nr_requests=9")));
        let bfq = Variant { kernel_scheduler: Some(String::from("bfq")), ..variant("") };
        assert!(!bfq.is_like(&variant("")));
    }
}
