//! Who may register, whose reports count, and when an agent is judged.

use super::{AGENTS_MAX, Agent, Arrival, Class, Duration, Fleet, GRACE_MS, Load, PROTOCOL_VERSION};
use crate::tests::{LEASE_MS, agent, at, refused, register};
use weir_planner::protocol::HubResponse;

fn fleet(token: Option<&str>) -> Fleet {
    Fleet::load([], Duration::from_millis(LEASE_MS), token.map(str::to_owned), at(0))
}

/// AGT-6: the limit counts registered agents, names the way out, and a known one always comes back.
#[test]
fn agent_257_is_refused() {
    let mut fleet = fleet(None);
    for n in 0..AGENTS_MAX {
        fleet.register(&register(&format!("a{n}"), "b", "s", &[]), &format!("session {n}"), at(0)).unwrap();
    }
    let refusal = fleet.register(&register("late", "b", "s", &[]), "x", at(0)).unwrap_err();
    assert_eq!(refusal.class, Class::User);
    assert_eq!(refusal.message, "agent 'late' is one too many: this hub has its 256 agents; run a further hub for more");
    assert_eq!(fleet.register(&register("a7", "b2", "s", &[]), "y", at(0)), Ok(Arrival::Started));
    assert!(fleet.get(&agent("late")).is_none());
}

/// AGT-1: another protocol and a wrong token are refused for good, with the reason.
#[test]
fn strangers_are_refused() {
    let mut fleet = fleet(Some("secret"));
    let mut request = register("a", "b", "s", &[]);
    assert_eq!(fleet.register(&request, "x", at(0)).unwrap_err().message, "agent 'a' did not present the hub's agent token");
    for wrong in ["", "secre", "secret2", "Secret"] {
        request.token = Some(wrong.to_owned());
        assert!(fleet.register(&request, "x", at(0)).is_err(), "{wrong}");
    }
    request.token = Some("secret".to_owned());
    assert_eq!(fleet.register(&request, "x", at(0)), Ok(Arrival::Started));
    request.protocol = PROTOCOL_VERSION + 1;
    let refusal = fleet.register(&request, "y", at(0)).unwrap_err();
    assert_eq!(refused(&HubResponse::Refused(refusal.clone())), Some(Class::User));
    assert!(refusal.message.contains("speaks protocol 2, this hub speaks 1"), "{}", refusal.message);
    assert_eq!(fleet.speaker("x"), Ok(agent("a")), "a refused registration changes nothing");
}

/// H4: sequences rise strictly within a session, start anew with the next, and an old session is fenced.
#[test]
fn reports_are_strictly_ordered() {
    let mut fleet = fleet(None);
    let load = Load::default();
    assert_eq!(fleet.register(&register("a", "b", "s", &[]), "one", at(0)), Ok(Arrival::Started));
    assert_eq!(fleet.accept("one", 1, &load, at(0)), Ok(agent("a")));
    assert_eq!(fleet.accept("one", 5, &load, at(0)), Ok(agent("a")));
    for stale in [0, 1, 5] {
        assert_eq!(fleet.accept("one", stale, &load, at(0)).unwrap_err().class, Class::Fenced, "{stale}");
    }
    assert_eq!(fleet.register(&register("a", "b", "s", &[]), "two", at(0)), Ok(Arrival::Reconnected));
    assert_eq!(fleet.accept("one", 6, &load, at(0)).unwrap_err().class, Class::Fenced);
    assert_eq!(fleet.accept("two", 1, &load, at(0)), Ok(agent("a")));
    assert_eq!(fleet.register(&register("a", "b2", "s", &[]), "three", at(0)), Ok(Arrival::Started));
}

/// AGT-4: judged after lease and grace from the last receipt, once; its session is over then.
#[test]
fn a_silent_agent_is_judged_once() {
    let mut fleet = fleet(None);
    let limit = LEASE_MS + GRACE_MS;
    fleet.register(&register("a", "b", "s", &[]), "one", at(0)).unwrap();
    fleet.accept("one", 1, &Load::default(), at(1_000)).unwrap();
    assert_eq!(fleet.next_deadline(), Some(1_000 + limit));
    assert_eq!(fleet.judge(at(1_000 + limit - 1)), Vec::new());
    assert_eq!(fleet.get(&agent("a")).unwrap().info(0).state, "online");
    assert_eq!(fleet.judge(at(1_000 + limit)), [agent("a")]);
    assert_eq!(fleet.judge(at(2_000 + limit)), Vec::new());
    assert_eq!(fleet.next_deadline(), None);
    let info = fleet.get(&agent("a")).unwrap().info(0);
    assert_eq!((info.state, info.last_seen_at_ms, info.lease_until_at_ms), ("offline", Some(1_001_000), Some(1_016_000)));
    assert_eq!(fleet.accept("one", 2, &Load::default(), at(2_000 + limit)).unwrap_err().class, Class::Fenced);
    assert!(fleet.candidates(at(2_000 + limit)).is_empty());
}

/// AGT-4: after its own start the hub grants every known agent a full lease and grace.
#[test]
fn a_hub_that_starts_gives_time() {
    let mut old = fleet(None);
    old.register(&register("a", "b", "s", &[]), "one", at(0)).unwrap();
    let stored: Vec<Agent> = old.members().map(|member| member.agent.clone()).collect();
    let mut fleet = Fleet::load(stored, Duration::from_millis(LEASE_MS), None, at(500));
    assert_eq!(fleet.speaker("one").unwrap_err().class, Class::Fenced, "sessions end with the hub");
    assert_eq!(fleet.judge(at(500 + LEASE_MS + GRACE_MS - 1)), Vec::new());
    assert_eq!(fleet.register(&register("a", "b", "s", &[]), "two", at(600)), Ok(Arrival::Reconnected));
    assert_eq!(fleet.judge(at(500 + LEASE_MS + GRACE_MS)), Vec::new());
}
