//! Prints every kind of target with its options, as docs/targets.md has them:
//!
//! ```sh
//! cargo run --release --example targets
//! ```

fn main() {
    print!("{}", weir::page::targets());
}
