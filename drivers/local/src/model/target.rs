//! The kind of target `model:NAME`.

use std::path::PathBuf;

use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, OpenedBacking, TargetKind, TargetOption,
};
use weir_sim_disk::Spec;

use super::Model;
use crate::{device_size, one_each};

/// Memory with the times of a modelled disk.
pub const MODEL: TargetKind = TargetKind {
    names: &["model"],
    syntax: &["model:NAME", "model:FILE.toml"],
    example: "model:nvme-980pro,size=8MiB",
    doc: "Memory that answers when a disk of that model would: one that is known by name \
          (`cheetah-15k7`, `nearline-7200`, `dd32`, `nvme-980pro`, `mlc-mqsim`, `optane-p4800x`, \
          `sas-ssd`, `nvme-illumos`, `powermax-8000`), or that a file describes.",
    options: &[
        TargetOption {
            name: "size",
            values: "SIZE",
            default: "as the model is",
            doc: "How much of it there is.",
        },
        TargetOption {
            name: "depth",
            values: "1 to 10240",
            default: "as the model is",
            doc: "Commands that it takes at once.",
        },
    ],
    parse: |written| {
        let of = match written.rest {
            "" => return Err(format!("target {:?} names no model", written.text)),
            file if file.ends_with(".toml") => Source::File(PathBuf::from(file)),
            name => Source::Known(Spec::preset(name).map_err(|why| why.to_string())?),
        };
        Ok(Box::new(ModelTarget { of, size: None, depth: None }))
    },
};

/// Where a model is described.
#[derive(Clone, Debug)]
enum Source {
    Known(Spec),
    File(PathBuf),
}

#[derive(Clone, Debug)]
struct ModelTarget {
    of: Source,
    size: Option<u64>,
    depth: Option<u16>,
}

impl ModelTarget {
    fn spec(&self) -> Result<Spec, DriverError> {
        let (spec, site) = match &self.of {
            Source::Known(spec) => (spec.clone(), String::from("model")),
            Source::File(path) => {
                let site = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|why| DriverError { what: site.clone(), source: Some(why) })?;
                (Spec::parse(&text).map_err(|why| refused(&site, &why))?, site)
            }
        };
        let refused = |why| refused(&site, &why);
        let spec = match self.size {
            None => spec,
            Some(bytes) => spec.sized(bytes).map_err(refused)?,
        };
        match self.depth {
            None => Ok(spec),
            Some(depth) => spec.deep(depth).map_err(refused),
        }
    }
}

/// Commands that a disk may take at once, as [`Spec`] has it.
const DEPTHS: std::ops::RangeInclusive<u16> = 1..=10_240;

fn refused(site: &str, why: &impl std::fmt::Display) -> DriverError {
    DriverError { what: format!("{site}: {why}"), source: None }
}

impl Backing for ModelTarget {
    fn kind(&self) -> &'static TargetKind {
        &MODEL
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "size" => self.size = Some(device_size(value)?),
            _ => {
                let depth = value.parse().ok().filter(|depth| DEPTHS.contains(depth));
                let outside =
                    || format!("depth={value} is outside {}..={}", DEPTHS.start(), DEPTHS.end());
                self.depth = Some(depth.ok_or_else(outside)?);
            }
        }
        Ok(())
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Ok(OpenedBacking::silent(Model::new(self.spec()?)?))
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        one_each(driver, homes)
    }

    fn identity(&self) -> Identity {
        Identity::Own
    }

    fn settings(&self) -> String {
        format!("{self:?}")
    }

    fn keeps(&self) -> Keeps {
        Keeps::WhileOpen
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use weir_queue::Written;
    use weir_sim_disk::PRESETS;

    use super::*;

    fn parse(rest: &str) -> Result<Box<dyn Backing>, String> {
        let text = format!("model:{rest}");
        (MODEL.parse)(&Written { name: "model", rest, text: &text })
    }

    #[test]
    fn the_sentence_has_all_names_and_each_opens() {
        for preset in PRESETS {
            assert!(MODEL.doc.contains(&format!("`{}`", preset.name)), "{}", preset.name);
            let mut target = parse(preset.name).expect("a name");
            target.set("size", "8MiB").expect("a size");
            let opened = target.open(&Config::default()).expect("a device");
            assert_eq!(opened.driver.limits().size().bytes(), 8 << 20);
            target.set("depth", "3").expect("a depth");
            assert_eq!(target.open(&Config::default()).expect("a device").driver.queues().depth, 3);
        }
    }

    #[test]
    fn what_is_no_model_is_refused_with_name_or_file() {
        assert!(parse("floppy").expect_err("none").contains("no disk \"floppy\"; there are"));
        assert!(parse("").expect_err("none").contains("names no model"));
        let error = |rest: &str, size: Option<&str>| {
            let mut target = parse(rest).expect("a model");
            size.map(|size| target.set("size", size)).transpose().expect("a size");
            target.open(&Config::default()).expect_err("an error").to_string()
        };
        assert!(error("no/such/file.toml", None).contains("no/such/file.toml"));
        for depth in ["0", "10241", "two"] {
            let why = parse("dd32").expect("a name").set("depth", depth).expect_err("no depth");
            assert_eq!(why, format!("depth={depth} is outside 1..=10240"));
        }
        let more = error("cheetah-15k7", Some("1TiB"));
        assert!(more.contains("size=1099511627776 is outside 512..="), "{more}");
    }
}
