//! A recording on its way to a client of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_queue::{LiveRecording, RecordingEnd};
use weir_sched::replay::Writer;

/// The last line of a recording begins like this; the reason follows.
pub const END: &str = "# recorded until ";

/// How long the client is listened to between two looks at what was recorded.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Sends a recording until the client has enough or it ends by itself.
pub(super) fn send(mut recording: LiveRecording, mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_AGAIN))?;
    let mut writer = Writer::new(recording.heading().clone());
    let mut text = String::new();
    loop {
        let end = recording.take(|noted| writer.event(noted, &mut text));
        if let Some(end) = &end {
            writer.end(&last_line(end), &mut text);
        }
        stream.write_all(text.as_bytes())?;
        if end.is_some() {
            return Ok(());
        }
        text.clear();
        if wants_no_more(stream)? {
            recording.stop();
        }
    }
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
