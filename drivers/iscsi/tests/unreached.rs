//! Ports of targets that were not there when they were opened, and turn up later.

#[path = "../../../tests/daemon/outside.rs"]
mod outside;
mod support;

use std::net::TcpListener;

use support::fake::{Conduct, NAME, does, listens, target};
use support::{Bed, Transferred, options, transfer};
use weir_driver_iscsi::{Iscsi, Options};
use weir_driver_scsi::Refusal;
use weir_proto_iscsi::wire::Residual;
use weir_proto_scsi::{AdditionalSense, Sense};

/// Page 83h with one designator: text, of the logical unit.
fn page_of(unit: &str) -> Vec<u8> {
    let length = unit.len() as u8;
    [&[0, 0x83, 0, length + 4, 2, 1, 0, length][..], unit.as_bytes()].concat()
}

/// A target with this unit.
fn has(unit: &str) -> Conduct {
    let page = page_of(unit);
    does(move |target, command, out| {
        let is_inquiry = command.cdb[0] == 0x12;
        if is_inquiry {
            let left = Residual::Under(command.expected - page.len() as u32);
            target.data_in((command.itt, 0, 0), &page, Some((0, left)), out);
        }
        !is_inquiry
    })
}

#[test]
fn a_port_whose_target_was_not_there_refuses_until_it_is_there_with_the_right_unit() {
    let port = outside::free_port();
    // Commands would wait for a session that was lost.
    let patient = Options { replacement_timeout: None, ..options(port) };
    let mut bed = Bed::unreached(NAME, patient, &page_of("unit one"));
    let read = transfer(false, 0, 4096, false);
    let refused = |bed: &mut Bed| bed.send(1, &read, Transferred::In(4096), 4096);
    assert_eq!(refused(&mut bed), Err(Refusal::Lost));
    bed.until_told("cannot log in, and goes on trying");
    assert_eq!(refused(&mut bed), Err(Refusal::Lost));
    assert_eq!(bed.port.outage_until(), None, "no time is stopped for it");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    listens(listener, vec![has("unit one"), has("unit one")]);
    assert_eq!(bed.events, []);
    bed.until_told("session 0: is there");
    // The mid-layer is to ask by which port it is reached, and the state of that.
    let [(unit, said)] = &bed.events[..] else { panic!("{:?}", bed.events) };
    let said = Sense::decode(said).expect("sense");
    assert_eq!(*unit, support::lun(1));
    assert_eq!(said.code, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    assert_eq!(bed.read(0, 4096), [0; 4096]);
    assert_eq!(bed.events.len(), 1, "it is told once");
}

#[test]
fn a_port_whose_target_turns_up_with_another_unit_is_gone() {
    let port = target(vec![has("unit two")]);
    let mut bed = Bed::unreached(NAME, options(port), &page_of("unit one"));
    bed.until_told("another logical unit");
    let read = transfer(false, 0, 4096, false);
    assert_eq!(bed.send(1, &read, Transferred::In(4096), 4096), Err(Refusal::Gone));
    // Nothing tells a unit without a name from another.
    let nameless = |page: &[u8]| {
        let transport = Iscsi::new(support::name(NAME), options(port)).expect("an address");
        transport.unreached(support::lun(1), page).is_none()
    };
    assert!(nameless(&[0, 0x83, 0, 0]) && nameless(&[]) && !nameless(&page_of("x")));
}
