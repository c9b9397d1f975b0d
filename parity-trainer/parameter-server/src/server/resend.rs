//! Messages that are sent again because no answer came.

use std::time::Duration;

use super::ServerConfig;
use super::replica::{Context, Replica};
use crate::{Message, Peer, Replicate, Seq};

/// Log entries in one resend: enough to fill a gap, few enough not to drown a slow successor.
const RESENT_AT_ONCE: usize = 64;

impl Replica {
    pub(super) fn next_timer(&self, config: &ServerConfig) -> Option<Duration> {
        let log =
            (!self.log.is_empty() && self.fenced.is_none()).then_some(self.sent_at + config.resend);
        let copy = self
            .outgoing
            .as_ref()
            .map(|outgoing| outgoing.sent_at() + config.resend);
        log.into_iter().chain(copy).min()
    }

    pub(super) fn tick(&mut self, context: &mut Context<'_>) {
        if self.fenced.is_none() && context.now >= self.sent_at + context.config.resend {
            self.resend_log(context);
        }
        let at = self.at();
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.tick(at, context);
        }
    }

    /// Sends the oldest entries that are not acknowledged to the successor.
    pub(super) fn resend_log(&mut self, context: &mut Context<'_>) {
        let Some(next) = self.successor(context.node) else {
            return;
        };
        self.sent_at = context.now;
        for (seq, operation) in (self.acked.0 + 1..)
            .map(Seq)
            .zip(self.log.iter().take(RESENT_AT_ONCE))
        {
            let entry = Replicate {
                at: self.at(),
                seq,
                operation: operation.clone(),
            };
            context.send(Peer::Server(next), Message::Replicate(entry));
        }
    }
}
