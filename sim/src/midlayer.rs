//! The SCSI mid-layer that the simulator turns below its paths: what of it is used here.

pub(crate) use weir_driver_scsi::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Facts, Host as ScsiHost,
    HostOptions, Management, ManagementAnswer, Port, Probe, Refusal, Transport, Unit, UnitOptions,
};
