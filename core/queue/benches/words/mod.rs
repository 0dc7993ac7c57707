//! The words behind `--` of a bench below the tools.

/// Those of this process, without cargo's own. With `--help` the process ends here with 0, and
/// `usage` is told.
pub fn words(usage: &str) -> Vec<String> {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{usage}");
        std::process::exit(0);
    }
    words
}

/// Ends the process with 2 for words that the bench does not know.
pub fn refuse(words: &[String], usage: &str) -> ! {
    eprintln!("{:?} is not known to this bench:\n\n{usage}", words.join(" "));
    std::process::exit(2)
}
