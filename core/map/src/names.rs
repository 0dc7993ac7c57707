//! The names of disks in a target.

use weir_queue::Written;

/// The names in `A+B+...`.
pub(crate) fn names_of(written: &Written<'_>, text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split('+').map(String::from).collect();
    if names.iter().any(String::is_empty) {
        let first = written.name;
        return Err(format!("target {:?} names no disk, as in {first}:sda+sdb", written.text));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("target {:?} names disk {} twice", written.text, pair[0])),
        None => Ok(names),
    }
}
