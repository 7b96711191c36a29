//! Where `tracing` goes: standard error, one line an event. On Actions the lines are fenced from
//! the runner's command parser by their own prefix: no line of ours begins with `::`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Variable with filter directives, as `tracing_subscriber` reads them.
const VARIABLE: &str = "OVERHAUL_LOG";

/// Starts logging: `OVERHAUL_LOG`, else the level of the option or of the action's input, else what
/// happens on Actions and at a terminal, and warnings where nobody watches.
pub(super) fn start(level: Option<&str>) {
    let on_actions = std::env::var("GITHUB_ACTIONS").is_ok_and(|v| v == "true");
    let input = std::env::var("INPUT_LOG-LEVEL").ok().filter(|v| !v.trim().is_empty());
    let watched = on_actions || std::io::IsTerminal::is_terminal(&std::io::stderr());
    let level = level.map(str::to_owned).or(input).unwrap_or_else(|| fallback(watched).to_owned());
    let named = EnvFilter::try_from_env(VARIABLE)
        .or_else(|_| EnvFilter::try_new(format!("overhaul={level}")));
    let unknown = named.is_err();
    let filter = named.unwrap_or_else(|_| EnvFilter::new("overhaul=warn"));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_span_events(FmtSpan::NONE)
        .with_target(false)
        .try_init();
    // Started twice only in tests; then the first one stays.
    drop(started);
    if unknown {
        tracing::warn!(
            "the log level is none of error, warn, info, debug and trace: warnings are logged"
        );
    }
}

/// The level where nobody names one.
fn fallback(watched: bool) -> &'static str {
    if watched { "info" } else { "warn" }
}

#[cfg(test)]
mod tests {
    #[test]
    fn who_watches_is_told_what_happens() {
        assert_eq!((super::fallback(true), super::fallback(false)), ("info", "warn"));
    }
}
