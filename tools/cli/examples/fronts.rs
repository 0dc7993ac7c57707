//! Prints docs/fronts.md, for `cargo xtask tunables`.

#[path = "../src/fronts.rs"]
#[allow(dead_code, unused_imports, reason = "the daemon alone opens them")]
mod fronts;

fn main() {
    print!("{}", weir_front::page(&fronts::kinds()));
}
