//! Scratch.
use weir_bench::core::*;
#[global_allocator]
static A: weir_bench::alloc::Counting = weir_bench::alloc::Counting;
fn main() {
    let mut o = Options::default();
    let a: Vec<String> = std::env::args().collect();
    o.threads = a.get(1).map_or(1, |s| s.parse().unwrap());
    if a.get(2).is_some_and(|s| s == "sq") {
        o.mode = weir_queue::QueueMode::Sq;
    }
    println!("{}", serde_json::to_string_pretty(&run(&o).unwrap()).unwrap());
}
