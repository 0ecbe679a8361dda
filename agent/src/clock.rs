//! The wall clock, the monotonic clock of the data path, and the clock that leases are counted on.

use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_kernel::io::Clock;

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Monotonic time counts from now.
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Milliseconds since the machine started, suspended time included (BOOTTIME), so that an agent
/// that slept past its lease knows it (AGT-4). Where the system does not tell, monotonic time
/// since `fallback`.
pub fn boot_ms(fallback: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/uptime").ok().and_then(|text| parse_uptime(&text));
    told.unwrap_or_else(|| u64::try_from(fallback.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// `"350735.47 234388.90"`: seconds up and seconds idle.
fn parse_uptime(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_whitespace().next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let hundredths: u64 = rest.get(..2)?.parse().ok()?;
    seconds.checked_mul(1_000)?.checked_add(hundredths * 10)
}

#[cfg(test)]
mod tests {
    use super::parse_uptime;

    #[test]
    fn uptime_text_is_milliseconds() {
        assert_eq!(parse_uptime("350735.47 234388.90\n"), Some(350_735_470));
        assert_eq!(parse_uptime(""), None);
        assert_eq!(parse_uptime("up 3 days"), None);
    }
}
