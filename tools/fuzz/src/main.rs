//! `weir-fuzz TARGET FILE...` runs a target once for each file. Built with `--cfg fuzzing` it is a
//! program of libFuzzer instead, whose target is named by `WEIR_FUZZ`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod guided {
    use std::sync::LazyLock;

    static TARGET: LazyLock<&weir_fuzz::Target> = LazyLock::new(|| {
        let name = std::env::var("WEIR_FUZZ").expect("WEIR_FUZZ names a target");
        weir_fuzz::target(&name).unwrap_or_else(|| panic!("WEIR_FUZZ={name} is no target"))
    });

    libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.check)(bytes));
}

#[cfg(not(fuzzing))]
fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("weir-fuzz TARGET FILE...")?;
    let target = weir_fuzz::target(&name).ok_or_else(|| {
        let names: Vec<_> = weir_fuzz::TARGETS.iter().map(|target| target.name).collect();
        format!("{name} is no target; those are {}", names.join(", "))
    })?;
    for path in words {
        let bytes = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
        (target.check)(&bytes);
    }
    Ok(())
}
