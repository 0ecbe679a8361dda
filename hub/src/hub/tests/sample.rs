//! Jobs whose sources declare no columns (JOB-6): they wait, are sampled, bound and pinned once.

use super::*;
use crate::hub::StartFrom;
use crate::hub::{Binder, NewJob};
use crate::tests::sealed;
use weir_planner::error::{Fault, Place};
use weir_planner::id::OperatorId;
use weir_planner::spec::JobSpec;

/// Takes the answer for the name of the one BIGINT column; one called `wrong` does not fit the job.
struct OneColumn;

impl Binder for OneColumn {
    fn bind(&self, spec: &JobSpec, columns: &[(OperatorId, Bytes)]) -> std::result::Result<JobSpec, Vec<Fault>> {
        let mut spec = spec.clone();
        for (id, answer) in columns {
            let name = String::from_utf8(answer.to_vec()).unwrap();
            if name == "wrong" {
                return Err(vec![
                    Fault::new("expression", "sources[0].config.path", "no such column"),
                    Fault::new("expression", "", "and more"),
                ]);
            }
            let source = spec.sources.iter_mut().find(|source| source.operator_id == *id).unwrap();
            source.schema = serde_json::from_value(serde_json::json!([{"name": name, "type": "BIGINT"}])).unwrap();
        }
        Ok(spec)
    }
}

fn pending(path: &str, desired: DesiredState) -> NewJob {
    let spec = serde_json::from_value(serde_json::json!({
        "id": "j",
        "operators": [{"id": "source-0", "kind": "source"}, {"id": "sink-0", "kind": "sink"}],
        "edges": [{"id": "edge-0", "from": "source-0", "to": "sink-0"}],
        "sources": [{
            "operator_id": "source-0", "input_type": "file", "codec": {"type": "json"}, "config": {"type": "file", "path": path},
        }],
        "sinks": [{"operator_id": "sink-0", "output_type": "drop", "config": {"type": "drop"}}],
    }));
    let places = [("sources[0].config".to_owned(), Place { line: 7, column: 5 })].into();
    NewJob { spec: spec.unwrap(), sql: None, uses: Vec::new(), stream: None, desired, places }
}

async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.hub.sample_with(Arc::new(OneColumn));
    rig
}

impl Rig {
    async fn crash_sampling(self) -> Rig {
        let rig = self.crash().await;
        rig.hub.sample_with(Arc::new(OneColumn));
        rig
    }
}

impl Fake {
    /// Takes the next question, which must be for columns, and answers it.
    async fn sampled(&self, answer: std::result::Result<&'static str, (Class, &str)>) {
        let read = NextRead { session: self.session.clone(), wait_ms: 30_000 };
        let asked = self.hub.agent_call(AgentRequest::NextRead(read));
        let asked = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("the agent is asked");
        let HubResponse::Read(Some(asked)) = asked else { panic!("{asked:?}") };
        let ReadTarget::Sample(source) = &asked.target else { panic!("{asked:?}") };
        assert_eq!((asked.job.as_str(), source.operator_id.as_str(), source.schema.len()), ("j", "source-0", 0));
        let body = answer
            .map(|name| futures::stream::iter([Ok(Bytes::from_static(name.as_bytes()))]).boxed())
            .map_err(|(class, message)| failure(class, message));
        self.hub.read_answer(&self.session, asked.id, body).await.unwrap();
    }

    /// Nothing is asked of the agent now.
    async fn unasked(&self) {
        let read = NextRead { session: self.session.clone(), wait_ms: 0 };
        assert_eq!(self.hub.agent_call(AgentRequest::NextRead(read)).await, HubResponse::Read(None));
    }
}

fn says(reason: &'static str) -> impl Fn(&JobInfo) -> bool {
    move |info| info.last_error.as_deref().is_some_and(|told| told.contains(reason))
}

/// JOB-6: without an agent, and without a row, the job waits in `starting` with that reason; with a row
/// the columns are pinned with the plan, and the start goes on. JOB-1: what was submitted can still be read.
#[tokio::test]
async fn a_job_without_columns_waits_for_its_first_row() {
    let rig = rig().await;
    let info = rig.hub.create_job(pending("x", DesiredState::Running)).await.unwrap();
    assert!(info.plan.is_none());
    let info = rig.until(says("no agent is online")).await;
    assert_eq!(info.state, JobState::Starting);
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    fake.sampled(Err((Class::Retry, "source 'source-0': no row to sample yet"))).await;
    let info = rig.until(says("no row to sample yet")).await;
    assert_eq!((info.state, info.attempt), (JobState::Starting, attempt(0)));
    fake.unasked().await;
    rig.clock.advance(Duration::from_secs(1));
    fake.sampled(Ok("n")).await;
    let command = fake.run(1).await;
    let info = rig.hub.wait(&job("j"), WaitFor::Running, LONG).await.unwrap();
    let Action::Start(start) = &command.action else { panic!("a start") };
    assert_eq!(start.plan, sealed(info.plan.as_ref().unwrap()));
    assert_eq!((info.spec.sources[0].schema[0].name.as_str(), info.last_error.as_deref()), ("n", None));
    assert_eq!(**info.submitted.as_ref().unwrap(), pending("x", DesiredState::Running).spec);
    let kinds = rig.kinds();
    assert_eq!(kinds, ["created", "waiting", "waiting", "sampled", "starting", "running"]);
    // The same text again is the same version; another text is not.
    rig.hub.create_job(pending("x", DesiredState::Running)).await.unwrap();
    assert!(matches!(rig.hub.create_job(pending("y", DesiredState::Running)).await, Err(Error::Conflict(_))));
}

/// JOB-6, H1: a hub killed in between asks again until the columns are pinned, and then never again.
#[tokio::test]
async fn a_killed_hub_samples_again_until_columns_are_pinned() {
    let rig = rig().await;
    let fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(pending("x", DesiredState::Running)).await.unwrap();
    fake.sampled(Err((Class::Retry, "no row to sample yet"))).await;
    rig.until(says("no row")).await;
    drop(fake);
    let rig = rig.crash_sampling().await;
    let fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    fake.sampled(Ok("n")).await;
    rig.until(|info| info.plan.is_some()).await;
    drop(fake);
    let rig = rig.crash_sampling().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    fake.run(1).await;
    fake.unasked().await;
    let info = rig.hub.job(&job("j")).unwrap();
    assert_eq!(info.spec.sources[0].schema[0].name, "n");
    assert!(info.submitted.as_ref().unwrap().sources[0].schema.is_empty());
}

/// JOB-6: faults that show with the columns fail the job, all of them, each with its place in the text;
/// a new start looks again.
#[tokio::test]
async fn a_job_that_does_not_fit_its_columns_fails() {
    let rig = rig().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(pending("x", DesiredState::Running)).await.unwrap();
    fake.sampled(Ok("wrong")).await;
    let info = rig.until(|info| info.state == JobState::Failed).await;
    let told = info.last_error.as_deref().unwrap();
    assert!(told.contains("line 7, column 5: sources[0].config.path: no such column") && told.ends_with("; and more"), "{told}");
    rig.hub.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest).await.unwrap();
    fake.sampled(Err((Class::User, "topic 'x' does not exist"))).await;
    let info = rig.until(says("topic 'x' does not exist")).await;
    assert_eq!(info.state, JobState::Failed);
    rig.hub.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest).await.unwrap();
    fake.sampled(Ok("n")).await;
    fake.run(1).await;
}

/// JOB-6: a job that is stopped, or dropped and made anew, while its source is sampled does not start by an old answer.
#[tokio::test]
async fn an_answer_for_a_job_that_is_not_wanted_any_more_starts_nothing() {
    let rig = rig().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(pending("x", DesiredState::Running)).await.unwrap();
    let read = NextRead { session: fake.session.clone(), wait_ms: 30_000 };
    let HubResponse::Read(Some(asked)) = rig.hub.agent_call(AgentRequest::NextRead(read)).await else { panic!("a question") };
    rig.hub.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest).await.unwrap();
    let body = futures::stream::iter([Ok(Bytes::from_static(b"n"))]).boxed();
    rig.hub.read_answer(&fake.session, asked.id, Ok(body)).await.unwrap();
    let info = rig.hub.job(&job("j")).unwrap();
    assert_eq!((info.state, info.plan.is_none()), (JobState::Stopped, true));
    rig.hub.drop_job(&job("j")).await.unwrap();
    // A namesake is sampled for itself, and only once it is started.
    rig.hub.create_job(pending("z", DesiredState::Stopped)).await.unwrap();
    fake.unasked().await;
    rig.hub.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest).await.unwrap();
    fake.sampled(Ok("m")).await;
    fake.run(1).await;
    assert_eq!(rig.hub.job(&job("j")).unwrap().spec.sources[0].schema[0].name, "m");
}
