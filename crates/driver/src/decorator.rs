//! The part of [`Driver`](crate::Driver) that decorators only forward.

/// Forwards methods of [`Driver`](crate::Driver) to `self.inner`, within an implementation of that trait. It includes those
/// with a default: if a decorator forgot one, it would hide what the driver below knows.
macro_rules! as_inner {
    () => {
        fn has_frames(&mut self) -> bool {
            self.inner.has_frames()
        }

        fn is_filling(&mut self) -> bool {
            self.inner.is_filling()
        }

        fn flush(&mut self) -> std::io::Result<()> {
            self.inner.flush()
        }

        fn flush_later(&mut self) -> std::io::Result<Option<crate::Kick>> {
            self.inner.flush_later()
        }

        fn settle(&self) {
            self.inner.settle();
        }

        fn wakes(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.inner.wakes()
        }

        fn wakes_for_frames(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.inner.wakes_for_frames()
        }

        fn rest_at_most(&self) -> Option<std::time::Duration> {
            self.inner.rest_at_most()
        }

        fn descriptors(&self) -> Vec<std::os::fd::RawFd> {
            self.inner.descriptors()
        }

        fn lost(&mut self) -> Option<u64> {
            self.inner.lost()
        }

        fn redirected(&self) -> Option<crate::Redirected> {
            self.inner.redirected()
        }
    };
}

pub(crate) use as_inner;
