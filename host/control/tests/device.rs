//! `block/<disk>/device`: what a driver shows of itself.

mod bed;

use std::sync::Arc;

use bed::Model;
use weir_bio::Limits;
use weir_control::{Errno, Node, Parameters, Tree};

fn tree(model: Model) -> Tree {
    let tree = Tree::new(Parameters::default());
    tree.add(Arc::new(model), 1);
    tree
}

fn limits() -> Limits {
    Limits { capacity: 2048, ..Limits::default() }
}

#[test]
fn a_driver_that_shows_nothing_has_no_folder() {
    let tree = tree(Model::new("sda", limits()));
    let failure = tree.look_up("block/sda/device").expect_err("there is none");
    assert_eq!(failure.errno, Errno::NotFound);
}

#[test]
fn what_a_driver_shows_is_read_and_written_beside_the_time_of_a_request() {
    let tree = tree(Model::new("sda", limits()).with_depth(32));
    let listed = tree.list("block/sda/device").expect("a folder");
    let file = |name: &str, writable| (name.to_owned(), Node::File { writable });
    let wanted = [file("model", false), file("queue_depth", true), file("timeout", true)];
    assert_eq!(listed, wanted);
    let read = |name: &str| tree.read(&format!("block/sda/device/{name}")).expect("a file");
    assert_eq!((read("model"), read("queue_depth")), ("MODEL\n".into(), "32\n".into()));
    tree.write("block/sda/device/queue_depth", b"8\n").expect("a depth");
    assert_eq!(read("queue_depth"), "8\n");
    let refused = tree.write("block/sda/device/queue_depth", b"x").expect_err("no number");
    assert_eq!(refused.errno, Errno::Invalid);
    assert!(refused.to_string().contains("queue_depth=x is no number"), "{refused}");
    let refused = tree.write("block/sda/device/model", b"x").expect_err("it is read-only");
    assert_eq!(refused.errno, Errno::Access);
}

#[test]
fn the_time_of_a_request_is_the_queues_in_seconds() {
    let tree = tree(Model::new("sda", limits()).with_depth(32));
    let read = |name: &str| tree.read(&format!("block/sda/{name}")).expect("a file");
    assert_eq!(read("device/timeout"), "30\n");
    tree.write("block/sda/device/timeout", b"60").expect("a time");
    assert_eq!(
        (read("device/timeout"), read("queue/io_timeout")),
        ("60\n".into(), "60000\n".into())
    );
    tree.write("block/sda/queue/io_timeout", b"5500").expect("a time");
    assert_eq!(read("device/timeout"), "5\n");
    let refused = tree.write("block/sda/device/timeout", b"4294968").expect_err("too long");
    assert_eq!(refused.errno, Errno::Invalid);
}

#[test]
fn a_cache_is_what_its_driver_tells_until_the_queue_takes_it_for_another_for_a_time() {
    let limits = Limits { volatile_cache: true, ..limits() };
    for (told, through) in [("write back", "write through"), ("write back, no read (daft)", "none")]
    {
        let tree = tree(Model::new("sda", limits.clone()).with_depth(32).with_cache(told));
        let read = |name: &str| tree.read(&format!("block/sda/{name}")).expect("a file");
        let write = |text: &str| tree.write("block/sda/device/cache_type", text.as_bytes());
        let both = |kind: &str, queue: &str| {
            assert_eq!(read("device/cache_type"), format!("{kind}\n"));
            assert_eq!(read("queue/write_cache"), format!("{queue}\n"));
        };
        both(told, "write back");
        write("temporary write through\n").expect("a kind");
        both(through, "write through");
        for text in ["write back", "temporary none", "temporary", "temporary write back, twice"] {
            let refused = write(text).expect_err(text);
            assert_eq!(refused.errno, Errno::Invalid);
            assert!(refused.to_string().contains("temporary write through"), "{refused}");
        }
        both(through, "write through");
        write("temporary write back").expect("a kind");
        both(told, "write back");
    }
    // One without a cache does not get one, and one that is told nothing of has no such file.
    let without = Limits { volatile_cache: false, ..limits };
    let tree = tree(Model::new("sda", without).with_cache("write through"));
    tree.write("block/sda/device/cache_type", b"temporary write back").expect("a kind");
    assert_eq!(tree.read("block/sda/device/cache_type").expect("a file"), "write through\n");
}
