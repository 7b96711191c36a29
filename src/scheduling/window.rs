//! One sliding window of one quota dimension.

use std::collections::VecDeque;

use super::Millis;

#[derive(Debug, Clone, Copy)]
struct Entry {
    seq: u64,
    at: Millis,
    amount: u64,
}

/// What the backend itself said is left, until its reset.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    left: u64,
    until: Millis,
}

/// Amounts of the last `span`; an entry made at `t` counts until just before `t + span`.
#[derive(Debug, Clone)]
pub(super) struct Window {
    span: Millis,
    entries: VecDeque<Entry>,
    sum: u64,
    ceiling: Option<Ceiling>,
}

impl Window {
    pub(super) fn new(span: Millis) -> Self {
        Self { span, entries: VecDeque::new(), sum: 0, ceiling: None }
    }

    /// Forgets what has left the window.
    pub(super) fn expire(&mut self, now: Millis) {
        while let Some(first) = self.entries.front() {
            if first.at.saturating_add(self.span) > now {
                break;
            }
            self.sum = self.sum.saturating_sub(first.amount);
            self.entries.pop_front();
        }
        if self.ceiling.is_some_and(|c| c.until <= now) {
            self.ceiling = None;
        }
    }

    /// Amount inside the window at `now`.
    pub(super) fn used(&mut self, now: Millis) -> u64 {
        self.expire(now);
        self.sum
    }

    /// The backend itself has said what is left.
    pub(super) fn is_told(&self) -> bool {
        self.ceiling.is_some()
    }

    pub(super) fn push(&mut self, seq: u64, now: Millis, amount: u64) {
        // A clock that steps back must not break the order.
        let at = self.entries.back().map_or(now, |e| e.at.max(now));
        self.entries.push_back(Entry { seq, at, amount });
        self.sum = self.sum.saturating_add(amount);
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.left = ceiling.left.saturating_sub(amount);
        }
    }

    /// Replaces a reserved amount by the real one, while it is still inside the window.
    pub(super) fn adjust(&mut self, seq: u64, amount: u64) {
        if let Ok(at) = self.entries.binary_search_by_key(&seq, |e| e.seq) {
            let entry = &mut self.entries[at];
            self.sum = self.sum.saturating_sub(entry.amount).saturating_add(amount);
            if let Some(ceiling) = &mut self.ceiling {
                ceiling.left = ceiling.left.saturating_add(entry.amount).saturating_sub(amount);
            }
            entry.amount = amount;
        }
    }

    /// An amount was counted by then, which is earlier than was feared. The order of entries stays.
    pub(super) fn counted(&mut self, seq: u64, by: Millis) {
        if let Ok(ix) = self.entries.binary_search_by_key(&seq, |e| e.seq) {
            let before = ix.checked_sub(1).map_or(by, |ix| self.entries[ix].at);
            let entry = &mut self.entries[ix];
            entry.at = entry.at.min(by.max(before));
        }
    }

    /// The backend says that `remaining` is left until `reset_at`; `outstanding` is what we have
    /// reserved and the backend may not have counted yet.
    pub(super) fn correct(&mut self, remaining: u64, outstanding: u64, reset_at: Millis) {
        self.ceiling =
            Some(Ceiling { left: remaining.saturating_sub(outstanding), until: reset_at });
    }

    /// When `need` fits behind `ahead` that is already promised; `None` = never. An unfilled
    /// window answers `now`.
    pub(super) fn earliest(
        &mut self,
        now: Millis,
        limit: Option<u64>,
        ahead: u64,
        need: u64,
    ) -> Option<Millis> {
        if need == 0 {
            return Some(now);
        }
        self.expire(now);
        let mut at = now;
        if let Some(limit) = limit {
            if need > limit {
                return None;
            }
            // Promises beyond one full window wait for further windows.
            let total = ahead.saturating_add(need);
            let full = (total - 1) / limit;
            let rest = total - full * limit;
            let mut free = limit.saturating_sub(self.sum);
            for entry in &self.entries {
                if free >= rest {
                    break;
                }
                at = entry.at + self.span;
                free = limit.min(free.saturating_add(entry.amount));
            }
            if free < rest {
                // More was used than the limit allows (a correction): one window clears it all.
                at = at.max(now) + self.span;
            }
            let full = Millis::try_from(full).unwrap_or(Millis::MAX);
            at = at.saturating_add(full.saturating_mul(self.span));
        }
        match self.ceiling {
            Some(c) if ahead.saturating_add(need) > c.left => Some(at.max(c.until)),
            _ => Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn an_unfilled_window_admits_at_once_and_a_full_one_says_when() {
        let mut w = Window::new(60_000);
        for seq in 0..3 {
            assert_eq!(w.earliest(1_000 * seq, Some(3), 0, 1), Some(1_000 * seq));
            w.push(seq as u64, 1_000 * seq, 1);
        }
        assert_eq!(w.earliest(3_000, Some(3), 0, 1), Some(60_000));
        assert_eq!(w.earliest(3_000, Some(3), 1, 1), Some(61_000));
        assert_eq!(w.earliest(3_000, Some(3), 3, 1), Some(120_000));
        assert_eq!(w.earliest(3_000, Some(3), 0, 4), None);
        assert_eq!(w.earliest(60_000, Some(3), 0, 1), Some(60_000));
    }

    #[test]
    fn absurd_amounts_end_with_their_window() {
        let mut w = Window::new(60_000);
        for seq in 0..3 {
            w.push(seq, 0, u64::MAX);
        }
        w.push(3, 30_000, 5);
        assert_eq!(w.earliest(30_000, Some(10), 0, 1), Some(60_000));
        assert_eq!(w.used(60_000), 0);
        assert_eq!(w.used(90_000), 0);
        assert_eq!(w.earliest(90_000, Some(10), 0, 10), Some(90_000));
    }

    #[test]
    fn an_answer_ends_the_fear_of_being_counted_later() {
        let mut w = Window::new(60_000);
        w.push(1, 2_000, 1);
        w.push(2, 2_100, 1);
        w.counted(2, 50);
        assert_eq!(w.earliest(100, Some(2), 0, 1), Some(62_000), "one after the other");
        assert_eq!(w.earliest(100, Some(2), 0, 2), Some(62_000));
        w.counted(1, 100);
        w.counted(2, 150);
        w.counted(2, 9_000);
        assert_eq!(w.earliest(200, Some(2), 0, 1), Some(60_100));
        assert_eq!(w.earliest(200, Some(2), 0, 2), Some(60_150), "never later than it was");
    }

    #[test]
    fn a_correction_holds_until_its_reset() {
        let mut w = Window::new(60_000);
        w.correct(1, 0, 10_000);
        assert_eq!(w.earliest(0, None, 0, 1), Some(0));
        w.push(1, 0, 1);
        assert_eq!(w.earliest(0, None, 0, 1), Some(10_000));
        assert_eq!(w.earliest(10_000, None, 0, 1), Some(10_000));
    }
}
