//! Secrets from files, which no list of processes shows.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use weir_proto_iscsi::Secret;

/// Bytes of the longest secret: as many as a value of CHAP can have.
const LEN_MAX: u64 = 255;

/// Reads a secret: the whole file but for one newline at its end. The file is a regular one that
/// belongs to this user or to root, and that no other user may read.
///
/// # Errors
/// A sentence that names the file and what is wrong with it, and shows nothing of its contents.
pub fn read_secret(path: &Path) -> Result<Secret, String> {
    let named = |what: String| format!("secret file {}: {what}", path.display());
    // A pipe without a writer would be waited for.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(no_wait).open(path);
    let file = file.map_err(|why| named(why.to_string()))?;
    check(&file).map_err(named)?;
    let mut bytes = Vec::with_capacity(LEN_MAX as usize + 2);
    let read = file.take(LEN_MAX + 2).read_to_end(&mut bytes);
    read.map_err(|why| named(why.to_string()))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    match bytes.len() as u64 {
        0 => Err(named("it is empty".to_owned())),
        1..=LEN_MAX => Ok(Secret::new(bytes)),
        _ => Err(named(format!("more than {LEN_MAX} bytes"))),
    }
}

fn check(file: &File) -> Result<(), String> {
    let metadata = file.metadata().map_err(|why| why.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("mode {mode:04o} lets other users at it: chmod 600"));
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 {
        return Err(format!("it belongs to user {owner}, neither to {user} nor to root"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A file of this content and mode, and what reading it gives.
    fn read(name: &str, content: &[u8], mode: u32) -> Result<Secret, String> {
        let path = std::env::temp_dir().join(format!("weir-secret-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
        let secret = read_secret(&path);
        std::fs::remove_file(&path).expect("a file");
        secret
    }

    #[test]
    fn one_newline_at_the_end_is_no_part_of_the_secret() {
        let is = |content: &[u8], secret: &str| {
            let read = read("newline", content, 0o600).expect("a secret");
            assert!(read.is(&Secret::new(secret.as_bytes().to_vec())), "{secret:?}");
        };
        is(b"weirsecret123", "weirsecret123");
        is(b"weirsecret123\n", "weirsecret123");
        is(b"weirsecret123\n\n", "weirsecret123\n");
        is(b" weirsecret 123 \r\n", " weirsecret 123 \r");
        is(&[b'x'; 255], &"x".repeat(255));
    }

    #[test]
    fn a_file_that_others_can_read_and_one_without_a_secret_are_refused_by_name() {
        for (content, mode, words) in [
            (&b"weirsecret123"[..], 0o640, "mode 0640"),
            (b"weirsecret123", 0o604, "mode 0604"),
            (b"weirsecret123", 0o620, "mode 0620"),
            (b"", 0o600, "empty"),
            (b"\n", 0o400, "empty"),
            (&[b'x'; 257], 0o600, "more than 255"),
        ] {
            let why = read("refused", content, mode).expect_err(words);
            assert!(why.contains(words) && why.contains("-refused"), "{why}");
            assert!(!why.contains("weirsecret123") && !why.contains("xxx"), "{why}");
        }
        let folder = read_secret(&std::env::temp_dir()).expect_err("a folder");
        assert!(folder.contains("no regular file"), "{folder}");
        assert!(read_secret(Path::new("/nonexistent/secret")).is_err());
    }
}
