//! Parapet: HTTP accept loop with limits, timeouts and graceful drain.
