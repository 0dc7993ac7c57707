//! Disks that are known by name. Each file says where its figures are from.

/// A disk that is known by its name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What [`Spec::parse`](crate::Spec::parse) reads.
    pub text: &'static str,
}

macro_rules! preset {
    ($name:literal) => {
        Preset { name: $name, text: include_str!(concat!("../presets/", $name, ".toml")) }
    };
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    preset!("cheetah-15k7"),
    preset!("nearline-7200"),
    preset!("dd32"),
    preset!("nvme-980pro"),
    preset!("mlc-mqsim"),
    preset!("optane-p4800x"),
    preset!("sas-ssd"),
    preset!("nvme-illumos"),
    preset!("powermax-8000"),
];
