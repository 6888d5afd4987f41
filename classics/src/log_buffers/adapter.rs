//! The buffers over a ring as buffers of the engine's log.

use super::ring::RingBuffer;
use super::{CArray, Decoupled, Delegated, Faa, Hybrid, Laser, Locked};
use foreshore_base::{Lsn, Result};
use foreshore_wal::log_buffer::{Checksummed, Drained, LogBuffer, Staging};
use foreshore_wal::{Record, flags};

/// Implements [`LogBuffer`] for buffers over a ring.
macro_rules! log_buffers {
    ($($buffer:ty),+ $(,)?) => {
        $(impl LogBuffer for $buffer {
            fn admit(&self, _slot: usize, bytes: u64) -> Option<u64> {
                self.ring().take_credit(bytes).then_some(bytes)
            }

            fn give_back(&self, _slot: usize, bytes: u64) -> bool {
                self.ring().give_credit(bytes);
                true
            }

            fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn {
                append(self, slot, record, dep)
            }

            fn commit_clock(&self) -> Lsn {
                self.ring().last_commit()
            }

            fn raise_commit_clock(&self, _to: Lsn) -> bool {
                false
            }

            fn current(&self) -> Lsn {
                Lsn(self.tail())
            }

            fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
                Ok(drain(self, prev, staging))
            }
        })+
    };
}

log_buffers!(Locked, CArray, Decoupled, Hybrid, Delegated, Faa, Laser);

#[inline]
fn append(buffer: &impl RingBuffer, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn {
    let lsn = buffer.insert(slot, &Checksummed::new(record));
    // A stamp above the tail is impossible: commit stamps are LSNs of this log, since a commit that needs a later one
    // appends its record again. A caller that passes the stamp of another log is told when the record is published: an
    // earlier panic would block every session behind it.
    assert!(lsn > dep, "record {lsn} does not follow {dep}");
    if record.flags & flags::COMMIT != 0 {
        buffer.ring().note_commit(lsn);
    }
    lsn
}

fn drain(buffer: &impl RingBuffer, prev: Lsn, staging: &mut Staging) -> Drained {
    let ring = buffer.ring();
    let upto = buffer.published().max(ring.drained());
    // SAFETY: the buffer says that everything below is copied in; bytes below `drained` are not touched again.
    let to = unsafe { ring.drain(upto, staging) };
    Drained { cut: prev.max(Lsn(to)), more: to < upto }
}
