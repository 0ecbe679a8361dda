//! Answers come through whole, or as an error, or the wait ends.

use super::{Arc, Body, BoxStream, Bytes, Error, QUEUE_MAX, Relay, SILENCE_MS, oneshot};
use crate::clock::ManualClock;
use crate::tests::{agent, question};
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use std::time::Duration;

type Answer = Result<BoxStream<'static, Result<Bytes, Error>>, Error>;

/// Posts a read for agent `a` and takes it as that agent would.
async fn asked(relay: &Arc<Relay>, clock: &Arc<ManualClock>) -> (u64, tokio::task::JoinHandle<Answer>) {
    let bell = relay.bell(&agent("a"));
    let mut rung = std::pin::pin!(bell.notified());
    rung.as_mut().enable();
    let asking = tokio::spawn({
        let (relay, clock) = (relay.clone(), clock.clone());
        async move { relay.ask(agent("a"), question(), clock).await }
    });
    rung.await;
    (relay.next(&agent("a")).unwrap().id, asking)
}

fn pieces(parts: &[Result<&'static str, &str>]) -> Body {
    let parts: Vec<Result<Bytes, String>> =
        parts.iter().map(|part| part.map(|t| Bytes::from_static(t.as_bytes())).map_err(str::to_owned)).collect();
    Ok(stream::iter(parts).boxed())
}

/// The bytes come through unread and in order, more of them than the channel holds.
#[tokio::test]
async fn an_answer_is_passed_on() {
    let (relay, clock) = (Arc::new(Relay::default()), Arc::new(ManualClock::new()));
    let (id, asking) = asked(&relay, &clock).await;
    let parts = [Ok("ab"), Ok("c")].repeat(20);
    let answering = tokio::spawn({
        let relay = relay.clone();
        async move { relay.answer(&agent("a"), id, pieces(&parts)).await }
    });
    let got: Vec<Bytes> = asking.await.unwrap().unwrap().try_collect().await.unwrap();
    assert_eq!(got.concat(), "abc".repeat(20).as_bytes());
    answering.await.unwrap();
    assert!(relay.desk.lock().waiters.is_empty());
}

/// What goes wrong on the way reaches the reader as an error, never as a shorter answer.
#[tokio::test]
async fn a_broken_answer_is_an_error() {
    let (relay, clock) = (Arc::new(Relay::default()), Arc::new(ManualClock::new()));
    let (id, asking) = asked(&relay, &clock).await;
    relay.answer(&agent("a"), id, Err(crate::tests::failure(weir_planner::error::Class::Retry, "no such job here"))).await;
    assert_eq!(asking.await.unwrap().err().unwrap().to_string(), "no such job here");

    let (id, asking) = asked(&relay, &clock).await;
    relay.answer(&agent("a"), id, pieces(&[Ok("ab"), Err("disk")])).await;
    let mut answer = asking.await.unwrap().unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "ab");
    assert_eq!(answer.next().await.unwrap().unwrap_err().to_string(), "the answer of agent 'a' broke off: disk");
    assert!(answer.next().await.is_none());

    // The agent's connection ends in the middle.
    let (id, asking) = asked(&relay, &clock).await;
    let endless = Ok(stream::iter([Ok(Bytes::from_static(b"ab"))]).chain(stream::pending()).boxed());
    let answering = tokio::spawn({
        let relay = relay.clone();
        async move { relay.answer(&agent("a"), id, endless).await }
    });
    let mut answer = asking.await.unwrap().unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "ab");
    answering.abort();
    assert_eq!(answer.next().await.unwrap().unwrap_err().to_string(), "the answer of agent 'a' broke off");
}

/// Every wait is bounded: 30 s for the first bytes, and between two pieces.
#[tokio::test]
async fn a_silent_agent_is_not_waited_for() {
    let (relay, clock) = (Arc::new(Relay::default()), Arc::new(ManualClock::new()));
    let (_, asking) = asked(&relay, &clock).await;
    clock.advance(Duration::from_millis(SILENCE_MS));
    assert_eq!(asking.await.unwrap().err().unwrap().to_string(), "agent 'a' did not answer a read of job 'j' within 30 s");
    assert!(relay.desk.lock().waiters.is_empty());

    let (id, asking) = asked(&relay, &clock).await;
    let slow = Ok(stream::iter([Ok(Bytes::from_static(b"ab"))]).chain(stream::pending()).boxed());
    let answering = tokio::spawn({
        let relay = relay.clone();
        async move { relay.answer(&agent("a"), id, slow).await }
    });
    let mut answer = asking.await.unwrap().unwrap();
    assert!(answer.next().await.unwrap().is_ok());
    let next = tokio::spawn(async move { answer.next().await });
    tokio::task::yield_now().await;
    clock.advance(Duration::from_millis(SILENCE_MS));
    assert!(next.await.unwrap().unwrap().is_err());
    answering.abort();
}

/// A reader that leaves takes its question along, and an answer that comes all the same is dropped.
#[tokio::test]
async fn a_reader_that_leaves_is_forgotten() {
    let (relay, clock) = (Arc::new(Relay::default()), Arc::new(ManualClock::new()));
    let (id, asking) = asked(&relay, &clock).await;
    asking.abort();
    assert!(asking.await.is_err());
    assert!(relay.desk.lock().waiters.is_empty());
    relay.answer(&agent("a"), id, Ok(stream::pending().boxed())).await;
}

/// One agent cannot answer for another, and the queue of each is bounded.
#[tokio::test]
async fn questions_belong_to_their_agent() {
    let (relay, clock) = (Arc::new(Relay::default()), Arc::new(ManualClock::new()));
    let (id, asking) = asked(&relay, &clock).await;
    relay.answer(&agent("b"), id, pieces(&[Ok("forged")])).await;
    relay.answer(&agent("a"), id, pieces(&[Ok("true")])).await;
    let got: Vec<Bytes> = asking.await.unwrap().unwrap().try_collect().await.unwrap();
    assert_eq!(got.concat(), b"true");
    let mut waiting = Vec::new();
    for _ in 0..QUEUE_MAX {
        let (answer, answered) = oneshot::channel();
        waiting.push((relay.post(&agent("a"), &mut question(), answer).unwrap(), answered));
    }
    let (answer, _answered) = oneshot::channel();
    let refused = relay.post(&agent("a"), &mut question(), answer).err().unwrap();
    assert_eq!(refused.to_string(), "64 reads already wait for agent 'a': try again later");
    assert!(relay.next(&agent("b")).is_none());
}
