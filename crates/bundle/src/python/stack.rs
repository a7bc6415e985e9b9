//! Running recursive work with a stack that fits the depth bounds.

/// Bytes that the deepest admitted tree needs, with room to spare in unoptimised builds.
const STACK: usize = 96 << 20;

/// Runs `work` on a thread with a large stack. `None` when no thread can be had.
pub(crate) fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("deep-source".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .ok()
            .and_then(|thread| thread.join().ok())
    })
}
