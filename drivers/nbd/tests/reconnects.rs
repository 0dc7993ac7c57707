//! A connection that is lost again and again costs nothing that stays. Alone in its file, because
//! it counts the descriptors of its process.

mod support;

use std::sync::mpsc::channel;
use std::thread;

use support::peer::{Peer, Session};
use support::{HANDED_BACK, Lane, read, write};
use weir_bio::Status;
use weir_driver_nbd::{Nbd, Options};
use weir_proto_nbd::wire::Mode;

const LOSSES: usize = 1_000;

/// Losses after which everything that is made once has been made.
const WARM: usize = 30;

/// Ways to lose a connection.
const WAYS: usize = 3;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// Grants a read. Then it ends, talks nonsense, or is silent until it is told to end.
fn serve_once(mut session: Session, way: usize, end: impl FnOnce()) {
    let (request, _) = session.request().expect("a read");
    session.say(|replies, out| {
        replies.read_header(request.reply_to(), request.length as u32, out);
        out.resize(out.len() + request.length as usize, 0);
    });
    session.request().expect("a write");
    match way {
        0 => drop(session),
        1 => {
            session.send(&[0xab; 64]);
            session.until_left();
        }
        _ => end(),
    }
}

#[test]
fn a_thousand_reconnects_leave_nothing_behind() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let (end, ended) = channel();
        let peer = &peer;
        scope.spawn(move || {
            for loss in 0..LOSSES {
                let session = peer.session_in(Mode::Structured);
                serve_once(session, loss % WAYS, || ended.recv().expect("a word to end"));
            }
            peer.session_in(Mode::Structured).until_left();
        });
        let nbd = Nbd::connect(peer.address(), "", Options::default()).expect("a device");
        let mut lane = Lane::open(&nbd, 0);
        let mut warm = 0;
        for loss in 0..LOSSES {
            assert_eq!(lane.status(read(0, 8)), Status::Ok);
            lane.submit(vec![write(0, 8, 1)]);
            if loss % WAYS == 2 {
                lane.now = lane.now + 1_000;
                assert_eq!(lane.cancel(lane.now - 1), (0, 1));
                end.send(()).expect("a silent server");
                while lane.kept > 0 {
                    lane.sleep();
                    lane.reap();
                }
            } else {
                assert_eq!(lane.all()[0].status, HANDED_BACK);
            }
            let back = |line: &String| line.ends_with("is back");
            lane.step_until(|| nbd.notices().last().is_some_and(back));
            if loss == WARM {
                warm = descriptors();
            }
        }
        assert_eq!(descriptors(), warm);
        assert_eq!((nbd.notices().len(), lane.rig.queue().in_flight()), (64, 0));
    });
}
