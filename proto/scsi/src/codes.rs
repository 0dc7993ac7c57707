//! Numbered words of the standards. They are open sets: an unknown number is kept, so that it can
//! be logged, counted or refused where the rule is known.

/// Declares a newtype over an integer, with named values.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$vdoc:meta])* $value:ident = $n:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$vdoc])* pub const $value: Self = Self($n);)*

            /// Every value with a name here, in the order of the table.
            pub const NAMED: &[Self] = &[$(Self::$value,)*];

            /// The standard's name with `_` for blanks, or `None` for a number without one here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$value => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Some(name) = self.name() else {
                    return write!(f, "{:0width$x}h", self.0, width = size_of::<$int>() * 2);
                };
                name.split('_').enumerate().try_for_each(|(at, word)| {
                    f.write_str(if at == 0 { "" } else { " " })?;
                    f.write_str(word)
                })
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

codes! {
    /// The status a command ended with. Source: SAM-5, "Status codes".
    ScsiStatus: u8 {
        /// Done; sense that comes with it is no error.
        GOOD = 0x00,
        /// The sense says what is the matter.
        CHECK_CONDITION = 0x02,
        /// A PRE-FETCH found room for its data.
        CONDITION_MET = 0x04,
        /// The logical unit takes no command now.
        BUSY = 0x08,
        /// Another initiator holds a reservation.
        RESERVATION_CONFLICT = 0x18,
        /// The task set has no place for the command.
        TASK_SET_FULL = 0x28,
        /// An auto contingent allegiance is in force.
        ACA_ACTIVE = 0x30,
        /// Another initiator aborted the command.
        TASK_ABORTED = 0x40,
    }
}

codes! {
    /// The first byte of a CDB. Sources: SPC-4 and SBC-3, tables of operation codes.
    Opcode: u8 {
        /// Whether the logical unit takes commands.
        TEST_UNIT_READY = 0x00,
        /// Fetches sense.
        REQUEST_SENSE = 0x03,
        /// Reads, 21-bit address, 8-bit length.
        READ_6 = 0x08,
        /// Writes, 21-bit address, 8-bit length.
        WRITE_6 = 0x0a,
        /// Identity and VPD pages.
        INQUIRY = 0x12,
        /// Stores mode pages, 8-bit length.
        MODE_SELECT_6 = 0x15,
        /// Fetches mode pages, 8-bit length.
        MODE_SENSE_6 = 0x1a,
        /// Starts or stops the medium.
        START_STOP_UNIT = 0x1b,
        /// Last block and block length, 32 bits.
        READ_CAPACITY_10 = 0x25,
        /// Reads, 32-bit address, 16-bit length.
        READ_10 = 0x28,
        /// Writes, 32-bit address, 16-bit length.
        WRITE_10 = 0x2a,
        /// Empties the volatile cache, 32-bit address.
        SYNCHRONIZE_CACHE_10 = 0x35,
        /// Writes one block many times, 32-bit address.
        WRITE_SAME_10 = 0x41,
        /// Deallocates ranges.
        UNMAP = 0x42,
        /// Stores mode pages, 16-bit length.
        MODE_SELECT_10 = 0x55,
        /// Fetches mode pages, 16-bit length.
        MODE_SENSE_10 = 0x5a,
        /// Reads reservations.
        PERSISTENT_RESERVE_IN = 0x5e,
        /// Changes reservations.
        PERSISTENT_RESERVE_OUT = 0x5f,
        /// Reads, 64-bit address, 32-bit length.
        READ_16 = 0x88,
        /// Compares, and writes if equal.
        COMPARE_AND_WRITE = 0x89,
        /// Writes, 64-bit address, 32-bit length.
        WRITE_16 = 0x8a,
        /// Empties the volatile cache, 64-bit address.
        SYNCHRONIZE_CACHE_16 = 0x91,
        /// Writes one block many times, 64-bit address.
        WRITE_SAME_16 = 0x93,
        /// Service actions of reading; READ CAPACITY(16) is one.
        SERVICE_ACTION_IN_16 = 0x9e,
        /// Lists logical units.
        REPORT_LUNS = 0xa0,
        /// Service actions of reporting.
        MAINTENANCE_IN = 0xa3,
        /// Service actions of setting.
        MAINTENANCE_OUT = 0xa4,
        /// Reads, 32-bit address, 32-bit length.
        READ_12 = 0xa8,
        /// Writes, 32-bit address, 32-bit length.
        WRITE_12 = 0xaa,
    }
}

impl Opcode {
    /// Bytes of a CDB with this operation code, by its group code (SAM-5, "Operation code");
    /// `None` for the groups whose length the standard does not fix.
    #[must_use]
    pub const fn cdb_len(self) -> Option<usize> {
        match self.0 >> 5 {
            0 => Some(6),
            1 | 2 => Some(10),
            4 => Some(16),
            5 => Some(12),
            _ => None,
        }
    }
}

codes! {
    /// ADDITIONAL SENSE CODE in the high byte and its qualifier in the low one. Source: SPC-4,
    /// annex of assigned codes.
    AdditionalSense: u16 {
        /// Nothing more is said.
        NONE = 0x0000,
        /// No reason is given.
        NOT_READY_CAUSE_NOT_REPORTABLE = 0x0400,
        /// It will be ready by itself.
        BECOMING_READY = 0x0401,
        /// START STOP UNIT makes it ready.
        INITIALIZING_COMMAND_REQUIRED = 0x0402,
        /// A person has to do something.
        MANUAL_INTERVENTION_REQUIRED = 0x0403,
        /// A format is under way.
        FORMAT_IN_PROGRESS = 0x0404,
        /// A rebuild is under way.
        REBUILD_IN_PROGRESS = 0x0405,
        /// A recalculation is under way.
        RECALCULATION_IN_PROGRESS = 0x0406,
        /// An operation is under way.
        OPERATION_IN_PROGRESS = 0x0407,
        /// A long write is under way.
        LONG_WRITE_IN_PROGRESS = 0x0408,
        /// A self-test is under way.
        SELF_TEST_IN_PROGRESS = 0x0409,
        /// The target port group goes from one state to another.
        ASYMMETRIC_ACCESS_STATE_TRANSITION = 0x040a,
        /// The target port group is in standby.
        TARGET_PORT_IN_STANDBY_STATE = 0x040b,
        /// The target port group is unavailable.
        TARGET_PORT_IN_UNAVAILABLE_STATE = 0x040c,
        /// NOTIFY (ENABLE SPINUP) is awaited.
        NOTIFY_ENABLE_SPINUP_REQUIRED = 0x0411,
        /// The logical unit or its port is off.
        OFFLINE = 0x0412,
        /// Space is being allocated.
        SPACE_ALLOCATION_IN_PROGRESS = 0x0414,
        /// A start or stop is under way.
        START_STOP_UNIT_COMMAND_IN_PROGRESS = 0x041a,
        /// A sanitize operation is under way.
        SANITIZE_IN_PROGRESS = 0x041b,
        /// A configuration is under way.
        CONFIGURATION_IN_PROGRESS = 0x041d,
        /// Parts of the medium are being taken out of use.
        DEPOPULATION_IN_PROGRESS = 0x0424,
        /// Writing failed.
        WRITE_ERROR = 0x0c00,
        /// The guard of the protection information does not match.
        LOGICAL_BLOCK_GUARD_CHECK_FAILED = 0x1001,
        /// The block cannot be read.
        UNRECOVERED_READ_ERROR = 0x1100,
        /// The address mark of the data is not there.
        ADDRESS_MARK_NOT_FOUND_FOR_DATA_FIELD = 0x1300,
        /// The block was not found.
        RECORDED_ENTITY_NOT_FOUND = 0x1400,
        /// The parameter list is cut.
        PARAMETER_LIST_LENGTH_ERROR = 0x1a00,
        /// The blocks differ from what was sent to compare.
        MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d00,
        /// There is no such command.
        INVALID_COMMAND_OPERATION_CODE = 0x2000,
        /// The range ends behind the last block.
        LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE = 0x2100,
        /// A field of the CDB has no such value.
        INVALID_FIELD_IN_CDB = 0x2400,
        /// There is no such logical unit.
        LOGICAL_UNIT_NOT_SUPPORTED = 0x2500,
        /// A field of the parameter list has no such value.
        INVALID_FIELD_IN_PARAMETER_LIST = 0x2600,
        /// A reservation was to be released that is of another type.
        INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x2604,
        /// Writes are refused.
        WRITE_PROTECTED = 0x2700,
        /// A thin store is full.
        SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x2707,
        /// The medium may be another one.
        MEDIUM_MAY_HAVE_CHANGED = 0x2800,
        /// Power on, reset, or reset of the logical unit.
        POWER_ON_OR_RESET_OCCURRED = 0x2900,
        /// The target reset itself.
        DEVICE_INTERNAL_RESET = 0x2904,
        /// A mode page has other values.
        MODE_PARAMETERS_CHANGED = 0x2a01,
        /// Reservations were preempted.
        RESERVATIONS_PREEMPTED = 0x2a03,
        /// A reservation was released.
        RESERVATIONS_RELEASED = 0x2a04,
        /// A registration was preempted.
        REGISTRATIONS_PREEMPTED = 0x2a05,
        /// The state of a target port group is another one.
        ASYMMETRIC_ACCESS_STATE_CHANGED = 0x2a06,
        /// An implicit change of that state failed.
        IMPLICIT_STATE_TRANSITION_FAILED = 0x2a07,
        /// The number of blocks is another one.
        CAPACITY_DATA_HAS_CHANGED = 0x2a09,
        /// Another initiator cleared the task set.
        COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2f00,
        /// A thin store is nearly full.
        THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x3807,
        /// Mode pages have no saved values.
        SAVING_PARAMETERS_NOT_SUPPORTED = 0x3900,
        /// There is no medium.
        MEDIUM_NOT_PRESENT = 0x3a00,
        /// The INQUIRY data is another.
        INQUIRY_DATA_HAS_CHANGED = 0x3f03,
        /// The list of logical units is another.
        REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f0e,
        /// The target failed inside.
        INTERNAL_TARGET_FAILURE = 0x4400,
    }
}

impl AdditionalSense {
    /// The pair of code and qualifier.
    #[must_use]
    pub const fn new(asc: u8, ascq: u8) -> Self {
        Self(u16::from_be_bytes([asc, ascq]))
    }

    /// ADDITIONAL SENSE CODE.
    #[must_use]
    pub const fn asc(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// ADDITIONAL SENSE CODE QUALIFIER.
    #[must_use]
    pub const fn ascq(self) -> u8 {
        self.0.to_be_bytes()[1]
    }
}
