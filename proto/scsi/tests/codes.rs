//! Numbered words have the numbers of the standards, and are shown by their names.

use weir_proto_scsi::reservation::{ReservationType, ReserveInAction, ReserveOutAction};
use weir_proto_scsi::{AdditionalSense, Opcode, ScsiStatus};

#[test]
fn additional_sense_codes_have_their_numbers_and_names() {
    let shown: Vec<_> =
        AdditionalSense::NAMED.iter().map(|code| format!("{:04x} {code}", code.0)).collect();
    let expected = "\
        0000 NONE,0400 NOT READY CAUSE NOT REPORTABLE,0401 BECOMING READY,\
        0402 INITIALIZING COMMAND REQUIRED,0403 MANUAL INTERVENTION REQUIRED,\
        0404 FORMAT IN PROGRESS,0405 REBUILD IN PROGRESS,0406 RECALCULATION IN PROGRESS,\
        0407 OPERATION IN PROGRESS,0408 LONG WRITE IN PROGRESS,0409 SELF TEST IN PROGRESS,\
        040a ASYMMETRIC ACCESS STATE TRANSITION,040b TARGET PORT IN STANDBY STATE,\
        040c TARGET PORT IN UNAVAILABLE STATE,0411 NOTIFY ENABLE SPINUP REQUIRED,\
        0412 OFFLINE,\
        0414 SPACE ALLOCATION IN PROGRESS,041a START STOP UNIT COMMAND IN PROGRESS,\
        041b SANITIZE IN PROGRESS,041d CONFIGURATION IN PROGRESS,\
        0424 DEPOPULATION IN PROGRESS,0c00 WRITE ERROR,\
        1001 LOGICAL BLOCK GUARD CHECK FAILED,1100 UNRECOVERED READ ERROR,\
        1300 ADDRESS MARK NOT FOUND FOR DATA FIELD,1400 RECORDED ENTITY NOT FOUND,\
        1a00 PARAMETER LIST LENGTH ERROR,1d00 MISCOMPARE DURING VERIFY OPERATION,\
        2000 INVALID COMMAND OPERATION CODE,2100 LOGICAL BLOCK ADDRESS OUT OF RANGE,\
        2400 INVALID FIELD IN CDB,2500 LOGICAL UNIT NOT SUPPORTED,\
        2600 INVALID FIELD IN PARAMETER LIST,\
        2604 INVALID RELEASE OF PERSISTENT RESERVATION,2700 WRITE PROTECTED,\
        2707 SPACE ALLOCATION FAILED WRITE PROTECT,2800 MEDIUM MAY HAVE CHANGED,\
        2900 POWER ON OR RESET OCCURRED,2904 DEVICE INTERNAL RESET,\
        2a01 MODE PARAMETERS CHANGED,2a03 RESERVATIONS PREEMPTED,2a04 RESERVATIONS RELEASED,\
        2a05 REGISTRATIONS PREEMPTED,2a06 ASYMMETRIC ACCESS STATE CHANGED,\
        2a07 IMPLICIT STATE TRANSITION FAILED,2a09 CAPACITY DATA HAS CHANGED,\
        2f00 COMMANDS CLEARED BY ANOTHER INITIATOR,\
        3807 THIN PROVISIONING SOFT THRESHOLD REACHED,3900 SAVING PARAMETERS NOT SUPPORTED,\
        3a00 MEDIUM NOT PRESENT,\
        3f03 INQUIRY DATA HAS CHANGED,3f0e REPORTED LUNS DATA HAS CHANGED,\
        4400 INTERNAL TARGET FAILURE";
    assert_eq!(shown, expected.split(',').collect::<Vec<_>>());
    assert_eq!(AdditionalSense(0x8901).to_string(), "8901h");
    let pair = AdditionalSense::new(0x12, 0x34);
    assert_eq!((pair.0, pair.asc(), pair.ascq()), (0x1234, 0x12, 0x34));
}

#[test]
fn statuses_and_operation_codes_have_their_numbers_and_names() {
    let shown: Vec<_> =
        ScsiStatus::NAMED.iter().map(|status| format!("{:02x} {status}", status.0)).collect();
    let expected = "00 GOOD,02 CHECK CONDITION,04 CONDITION MET,08 BUSY,18 RESERVATION CONFLICT,\
        28 TASK SET FULL,30 ACA ACTIVE,40 TASK ABORTED";
    assert_eq!(shown.join(","), expected);
    let shown: Vec<_> =
        Opcode::NAMED.iter().map(|opcode| format!("{:02x} {opcode}", opcode.0)).collect();
    let expected = "00 TEST UNIT READY,03 REQUEST SENSE,08 READ 6,0a WRITE 6,12 INQUIRY,\
        15 MODE SELECT 6,1a MODE SENSE 6,1b START STOP UNIT,25 READ CAPACITY 10,28 READ 10,\
        2a WRITE 10,35 SYNCHRONIZE CACHE 10,41 WRITE SAME 10,42 UNMAP,55 MODE SELECT 10,\
        5a MODE SENSE 10,5e PERSISTENT RESERVE IN,5f PERSISTENT RESERVE OUT,88 READ 16,\
        89 COMPARE AND WRITE,8a WRITE 16,91 SYNCHRONIZE CACHE 16,93 WRITE SAME 16,\
        9e SERVICE ACTION IN 16,a0 REPORT LUNS,a3 MAINTENANCE IN,a4 MAINTENANCE OUT,a8 READ 12,\
        aa WRITE 12";
    assert_eq!(shown.join(","), expected);
    assert_eq!((ScsiStatus(0x22).to_string(), ScsiStatus(0x22).name()), ("22h".into(), None));
}

#[test]
fn reservations_have_the_numbers_of_the_standard() {
    let actions = |named: &[ReserveOutAction]| named.iter().map(|is| is.0).collect::<Vec<_>>();
    assert_eq!(actions(ReserveOutAction::NAMED), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let out: Vec<_> = ReserveOutAction::NAMED.iter().map(ToString::to_string).collect();
    assert_eq!(
        out.join(","),
        "REGISTER,RESERVE,RELEASE,CLEAR,PREEMPT,PREEMPT AND ABORT,\
         REGISTER AND IGNORE EXISTING KEY,REGISTER AND MOVE,REPLACE LOST RESERVATION"
    );
    let ins: Vec<_> = ReserveInAction::NAMED.iter().map(|is| format!("{} {is}", is.0)).collect();
    let expected = "0 READ KEYS,1 READ RESERVATION,2 REPORT CAPABILITIES,3 READ FULL STATUS";
    assert_eq!(ins.join(","), expected);
    let kinds: Vec<_> = ReservationType::NAMED.iter().map(|is| format!("{} {is}", is.0)).collect();
    assert_eq!(
        kinds.join(","),
        "1 WRITE EXCLUSIVE,3 EXCLUSIVE ACCESS,5 WRITE EXCLUSIVE REGISTRANTS ONLY,\
         6 EXCLUSIVE ACCESS REGISTRANTS ONLY,7 WRITE EXCLUSIVE ALL REGISTRANTS,\
         8 EXCLUSIVE ACCESS ALL REGISTRANTS"
    );
}
