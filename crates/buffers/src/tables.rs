//! Tables 2, 3 and 4: which operations a message takes, for each semantics. The machines walk these rows, so what is printed is
//! what runs.

use crate::semantics::Semantics;

macro_rules! operations {
    ($($name:ident, $words:literal;)*) => {
        /// A primitive operation of data passing.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Operation { $(#[doc = $words] $name),* }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Operation] = &[$(Operation::$name),*];

            /// The paper's words.
            pub fn words(self) -> &'static str {
                match self { $(Operation::$name => $words),* }
            }
        }
    };
}

operations! {
    AllocateSystem, "Allocate system buffer.";
    Copyin, "Copyin output data.";
    DeallocateSystem, "Deallocate system buffer.";
    Reference, "Reference application pages.";
    Unreference, "Unreference application pages.";
    ReadOnly, "Read-only application pages.";
    Wire, "Wire region.";
    Unwire, "Unwire region.";
    MarkMovingOut, "Mark region moving out.";
    Invalidate, "Invalidate application pages.";
    MarkMovedOut, "Mark region moved out and enqueue.";
    MarkWeaklyMovedOut, "Mark region weakly moved out and enqueue.";
    RemoveRegion, "Remove region.";
    AllocateAligned, "Allocate aligned buffer.";
    Copyout, "Copyout input data.";
    SwapPages, "Swap pages.";
    DeallocateAligned, "Deallocate aligned buffer.";
    CreateRegion, "Create region.";
    ZeroComplete, "Zero-complete system pages.";
    FillRegion, "Fill region.";
    MapRegion, "Map region.";
    MarkMovedIn, "Mark region moved in.";
    DequeueMovedOut, "Dequeue moved out region.";
    DequeueWeaklyMovedOut, "Dequeue weakly moved out region.";
    MarkMovingIn, "Mark region moving in.";
    CheckRegion, "Check region.";
    Reinstate, "Reinstate page accesses.";
    AllocateOverlay, "Allocate overlay buffer.";
    Overlay, "Overlay buffer.";
    SwapOrCopyout, "If aligned, swap pages, else copy out.";
    RefillOverlay, "Refill overlay buffer.";
    DeallocateOverlay, "Deallocate overlay buffer.";
    TransferOutboard, "Transfer from outboard buffer.";
    DeallocateOutboard, "Deallocate outboard buffer.";
}

/// What an output takes: when it is called for, and when it has completed.
#[derive(Clone, Copy, Debug)]
pub struct OutputRow {
    /// Before the call goes on.
    pub prepare: &'static [Operation],
    /// When the bytes have been read.
    pub dispose: &'static [Operation],
}

/// What an input takes: when it is called for, when the device needs a buffer, and when the bytes are there.
#[derive(Clone, Copy, Debug)]
pub struct InputRow {
    /// When it is posted.
    pub prepare: &'static [Operation],
    /// When the bytes come.
    pub ready: &'static [Operation],
    /// When they are there.
    pub dispose: &'static [Operation],
}

use Operation::*;

/// Table 2.
pub const OUTPUT: [OutputRow; 8] = [
    OutputRow { prepare: &[AllocateSystem, Copyin], dispose: &[DeallocateSystem] },
    OutputRow { prepare: &[Reference, ReadOnly], dispose: &[Unreference] },
    OutputRow { prepare: &[Reference, Wire], dispose: &[Unwire, Unreference] },
    OutputRow { prepare: &[Reference], dispose: &[Unreference] },
    OutputRow { prepare: &[Reference, Wire, MarkMovingOut, Invalidate], dispose: &[Unwire, Unreference, RemoveRegion] },
    OutputRow { prepare: &[Reference, MarkMovingOut, Invalidate], dispose: &[Unreference, MarkMovedOut] },
    OutputRow { prepare: &[Reference, Wire, MarkMovingOut], dispose: &[Unwire, Unreference, MarkWeaklyMovedOut] },
    OutputRow { prepare: &[Reference, MarkMovingOut], dispose: &[Unreference, MarkWeaklyMovedOut] },
];

/// Table 3: with early demultiplexing.
pub const EARLY: [InputRow; 8] = [
    InputRow { prepare: &[], ready: &[AllocateSystem], dispose: &[Copyout, DeallocateSystem] },
    InputRow { prepare: &[], ready: &[AllocateAligned], dispose: &[SwapPages, DeallocateAligned] },
    InputRow { prepare: &[Reference, Wire], ready: &[], dispose: &[Unwire, Unreference] },
    InputRow { prepare: &[Reference], ready: &[], dispose: &[Unreference] },
    InputRow {
        prepare: &[],
        ready: &[AllocateSystem],
        dispose: &[CreateRegion, ZeroComplete, FillRegion, MapRegion, MarkMovedIn],
    },
    InputRow {
        prepare: &[DequeueMovedOut, MarkMovingIn, Reference],
        ready: &[],
        dispose: &[CheckRegion, Unreference, Reinstate, MarkMovedIn],
    },
    InputRow {
        prepare: &[DequeueWeaklyMovedOut, MarkMovingIn, Reference, Wire],
        ready: &[],
        dispose: &[CheckRegion, Unwire, Unreference, MarkMovedIn],
    },
    InputRow {
        prepare: &[DequeueWeaklyMovedOut, MarkMovingIn, Reference],
        ready: &[],
        dispose: &[CheckRegion, Unreference, MarkMovedIn],
    },
];

const OVERLAY: &[Operation] = &[AllocateOverlay, Overlay];

/// Table 4: with pooled buffering. What is prepared is what [`EARLY`] prepares.
pub const POOLED: [InputRow; 8] = [
    InputRow { prepare: EARLY[0].prepare, ready: OVERLAY, dispose: &[Copyout, DeallocateOverlay] },
    InputRow { prepare: EARLY[1].prepare, ready: OVERLAY, dispose: &[SwapOrCopyout, DeallocateOverlay] },
    InputRow { prepare: EARLY[2].prepare, ready: OVERLAY, dispose: &[Unwire, Unreference, SwapOrCopyout, DeallocateOverlay] },
    InputRow { prepare: EARLY[3].prepare, ready: OVERLAY, dispose: &[Unreference, SwapOrCopyout, DeallocateOverlay] },
    InputRow {
        prepare: EARLY[4].prepare,
        ready: OVERLAY,
        dispose: &[CreateRegion, ZeroComplete, FillRegion, RefillOverlay, MapRegion, MarkMovedIn, DeallocateOverlay],
    },
    InputRow {
        prepare: EARLY[5].prepare,
        ready: OVERLAY,
        dispose: &[CheckRegion, Unreference, SwapPages, MarkMovedIn, DeallocateOverlay],
    },
    InputRow {
        prepare: EARLY[6].prepare,
        ready: OVERLAY,
        dispose: &[CheckRegion, Unwire, Unreference, SwapPages, MarkMovedIn, DeallocateOverlay],
    },
    InputRow {
        prepare: EARLY[7].prepare,
        ready: OVERLAY,
        dispose: &[CheckRegion, Unreference, SwapPages, MarkMovedIn, DeallocateOverlay],
    },
];

/// Section 6.2.3, outboard buffering: table 3 altered. All but emulated copy transfer at ready time.
pub const OUTBOARD: [InputRow; 8] = [
    InputRow {
        prepare: &[],
        ready: &[AllocateSystem, TransferOutboard],
        dispose: &[Copyout, DeallocateSystem, DeallocateOutboard],
    },
    InputRow { prepare: &[], ready: &[], dispose: &[Reference, TransferOutboard, Unreference, DeallocateOutboard] },
    InputRow { prepare: EARLY[2].prepare, ready: &[TransferOutboard], dispose: &[Unwire, Unreference, DeallocateOutboard] },
    InputRow { prepare: EARLY[3].prepare, ready: &[TransferOutboard], dispose: &[Unreference, DeallocateOutboard] },
    InputRow {
        prepare: &[],
        ready: &[AllocateSystem, TransferOutboard],
        dispose: &[CreateRegion, ZeroComplete, FillRegion, MapRegion, MarkMovedIn, DeallocateOutboard],
    },
    InputRow {
        prepare: EARLY[5].prepare,
        ready: &[TransferOutboard],
        dispose: &[CheckRegion, Unreference, Reinstate, MarkMovedIn, DeallocateOutboard],
    },
    InputRow {
        prepare: EARLY[6].prepare,
        ready: &[TransferOutboard],
        dispose: &[CheckRegion, Unwire, Unreference, MarkMovedIn, DeallocateOutboard],
    },
    InputRow {
        prepare: EARLY[7].prepare,
        ready: &[TransferOutboard],
        dispose: &[CheckRegion, Unreference, MarkMovedIn, DeallocateOutboard],
    },
];

/// Where a device puts what comes (section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    /// Into the buffer of this very input, which was posted before.
    Early,
    /// Into pages of a pool.
    Pooled,
    /// Into memory of its own: here, the sender's region.
    Outboard,
}

impl Architecture {
    /// All three.
    pub const ALL: [Architecture; 3] = [Architecture::Early, Architecture::Pooled, Architecture::Outboard];

    /// The row of a semantics.
    pub fn row(self, semantics: Semantics) -> &'static InputRow {
        let table = match self {
            Architecture::Early => &EARLY,
            Architecture::Pooled => &POOLED,
            Architecture::Outboard => &OUTBOARD,
        };
        &table[semantics.index()]
    }
}

/// The row of table 2.
pub fn output(semantics: Semantics) -> &'static OutputRow {
    &OUTPUT[semantics.index()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::{Allocation, Integrity, Level};

    fn count(row: &[&[Operation]], operation: Operation) -> usize {
        row.iter().flat_map(|part| part.iter()).filter(|other| **other == operation).count()
    }

    #[test]
    fn what_is_taken_is_given_back() {
        let pairs = [
            (Reference, Unreference),
            (Wire, Unwire),
            (AllocateOverlay, DeallocateOverlay),
            (AllocateAligned, DeallocateAligned),
            (MarkMovingIn, CheckRegion),
        ];
        for semantics in Semantics::ALL {
            let out = output(semantics);
            let inputs = Architecture::ALL.map(|architecture| architecture.row(semantics));
            let rows = inputs.map(|row| [row.prepare, row.ready, row.dispose].concat());
            for row in rows.iter().map(|row| &row[..]).chain([&[out.prepare, out.dispose].concat()[..]]) {
                for (take, give) in pairs {
                    assert_eq!(count(&[row], take), count(&[row], give), "{}: {take:?}", semantics.name());
                }
            }
        }
    }

    #[test]
    fn rows_follow_from_the_dimensions() {
        for semantics in Semantics::ALL {
            let row = output(semantics);
            let all = [row.prepare, row.dispose];
            let wires = semantics.level == Level::Basic && semantics != Semantics::COPY;
            assert_eq!(count(&all, Wire) == 1, wires);
            assert_eq!(count(&all, MarkMovingOut) == 1, semantics.allocation == Allocation::System);
            let guards = count(&all, ReadOnly) + count(&all, Invalidate) + count(&all, Copyin);
            assert_eq!(guards == 1, semantics.integrity == Integrity::Strong);
        }
    }
}
