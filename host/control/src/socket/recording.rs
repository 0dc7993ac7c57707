//! A recording on its way to a client of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use weir_queue::{LiveRecording, RecordingEnd};
use weir_sched::replay::Writer;

/// The last line of a recording begins like this; the reason follows.
pub const END: &str = "# recorded until ";

/// How long the client is listened to between two looks at what was recorded.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long the client may take nothing between two looks whether the recording has ended.
const STUCK_LOOK: Duration = Duration::from_millis(100);

/// Sends a recording until the client has enough, has taken nothing for `limit`, or it ends by
/// itself.
pub(super) fn send(
    mut recording: LiveRecording,
    stream: &UnixStream,
    limit: Duration,
) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_AGAIN))?;
    stream.set_write_timeout(Some(STUCK_LOOK))?;
    let mut writer = Writer::new(recording.heading().clone());
    let mut text = String::new();
    loop {
        let end = recording.take(|noted| writer.event(noted, &mut text));
        if let Some(end) = &end {
            writer.end(&last_line(end), &mut text);
        }
        write(stream, text.as_bytes(), &recording, limit)?;
        if end.is_some() {
            return Ok(());
        }
        text.clear();
        if wants_no_more(stream)? {
            recording.stop();
        }
    }
}

/// Sends these bytes. While the client takes none, a recording that has ended, as it has lost calls
/// then, gives its disk's scheduler back.
fn write(
    mut stream: &UnixStream,
    mut bytes: &[u8],
    recording: &LiveRecording,
    limit: Duration,
) -> io::Result<()> {
    let mut taken_at = Instant::now();
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => {
                bytes = &bytes[taken..];
                taken_at = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                recording.let_go_if_over();
                if taken_at.elapsed() >= limit {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The text of the last line, without its mark of a comment.
fn last_line(end: &RecordingEnd) -> String {
    format!("{}{end}", END.trim_start_matches("# "))
}

/// Whether the client has shut its side down; it is waited for a moment.
fn wants_no_more(mut stream: &UnixStream) -> io::Result<bool> {
    match stream.read(&mut [0]) {
        Ok(0) => Ok(true),
        // It has nothing to say now.
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(false),
            io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        },
    }
}
