//! Prints docs/fronts.md, for `cargo xtask tunables`.

#[path = "../src/fronts.rs"]
mod fronts;

fn main() {
    print!("{}", weir_front::page(&fronts::kinds()));
}
