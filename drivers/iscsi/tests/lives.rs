//! Ports against targets that do anything, by dice. `tools/fuzz` plays the same lives, led by the
//! code that they reach. `LIVES_SEED` repeats a run.

mod wild;

use weir_bio::Prng;

#[test]
fn each_command_ends_once_and_in_time_whatever_the_target_does() {
    let seed = std::env::var("LIVES_SEED").ok();
    let seed: u64 = seed.map_or(1, |text| text.parse().expect("a whole number"));
    println!("seed {seed}");
    for life in 0..200 {
        let mut prng = Prng::new(seed << 32 | life);
        let mut steps = vec![0; 40 + prng.below(200) as usize];
        prng.fill(&mut steps);
        // Half of them with a sound target, but for its silences and ends.
        if life % 2 == 0 {
            steps[1..].iter_mut().for_each(|step| *step &= 0x7f);
        }
        println!("life {life}");
        wild::check(&steps);
    }
}
