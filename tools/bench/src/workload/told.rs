//! Devices and jobs as documents tell them.

use serde_json::{Map, Value, json};
use weir::{Device, QueueMode, Spread};
use weir_bio::Class;
use weir_load::{Amount, Arrival, Batching, Direction, Flow, Job, Sizes, Strides, Thinking};

use crate::engine::run;

/// The options of a device that is open.
pub(crate) fn device_json(device: &Device) -> Map<String, Value> {
    let config = device.config();
    let options = [
        ("queue_mode", json!(if config.mode == QueueMode::Sq { "sq" } else { "mq" })),
        ("queues", json!(config.queues)),
        (
            "spread",
            json!(if config.spread == Spread::RoundRobin { "round-robin" } else { "submitter" }),
        ),
        ("scheduler", json!(device.scheduler())),
        ("nr_requests", json!(device.nr_requests())),
        ("nomerges", json!(config.nomerges)),
        ("barriers", json!(if config.barriers { "on" } else { "off" })),
    ];
    options.into_iter().map(|(name, value)| (String::from(name), value)).collect()
}

/// A job on such a device.
pub(crate) fn job_json(job: &Job, device: &Device) -> Value {
    let range = job.range(run::ground(device)).ok();
    let sizes = || job.directions().iter().map(|direction| &job.sizes[*direction]);
    let bs = match sizes().next() {
        Some(Sizes::Fixed(bytes)) if sizes().all(|size| *size == Sizes::Fixed(*bytes)) => {
            Value::from(*bytes)
        }
        _ => Value::from(sizes().map(Sizes::to_string).collect::<Vec<_>>().join(",")),
    };
    let mut told = json!({
        "name": job.name, "rw": job.rw(), "bs": bs, "iodepth": job.depth,
        "numjobs": job.clones, "size": range.map(|range| range.bytes),
        "offset": range.map(|range| range.offset), "fsync": job.flush_every,
        "time_based": job.time_based, "randseed": job.seed,
    });
    if let Some(verify) = job.verify {
        told["verify"] = verify.name().into();
        if !job.read_back {
            told["do_verify"] = false.into();
        }
    }
    if job.ioprio.class() != Class::None {
        told["prioclass"] = (job.ioprio.class() as u8).into();
        told["prio"] = job.ioprio.level().into();
    }
    for (part, name) in job.urgent.iter().zip(["reads", "writes"]) {
        if part.percent > 0 {
            let (class, level) = (part.ioprio.class() as u8, part.ioprio.level());
            told["cmdprio"][name] =
                serde_json::json!({"percentage": part.percent, "class": class, "level": level});
        }
    }
    if job.ramp_ns > 0 {
        told["ramp_time_ns"] = job.ramp_ns.into();
    }
    if job.direction == Direction::Mixed {
        told["rwmixread"] = job.read_percent.into();
    }
    if job.rate != [0; 3] {
        told["rate_iops"] = job.rate.to_vec().into();
        told["rate_process"] = match job.arrival {
            Arrival::Even => "linear",
            Arrival::Poisson => "poisson",
        }
        .into();
    }
    if job.background {
        told["background"] = true.into();
    }
    tell_pace(job, &mut told);
    tell_content(job, &mut told);
    told["random_distribution"] = job.distribution.to_string().into();
    told
}

/// Whether its I/Os may wait for others to be begun with, where the target is fast: those that are
/// due at times of their own never do.
pub(crate) fn collects(job: &Job) -> bool {
    job.depth_in_use() > 1 && job.rate == [0; 3] && job.batching.may_collect()
}

/// What a job writes and how that is checked, its share and its logs, where that is said.
fn tell_content(job: &Job, told: &mut Value) {
    let Flow { weight, id, sleep_ns } = job.flow;
    let [backlog, batch] = job.verify_backlog.map(u64::from);
    for (name, value) in [
        ("verify_interval", job.verify_interval),
        ("verify_backlog", backlog),
        ("verify_backlog_batch", batch),
        ("flow", u64::from(weight)),
        ("flow_id", id),
        ("flow_sleep_ns", sleep_ns),
    ] {
        if value > 0 {
            told[name] = value.into();
        }
    }
    if !job.pattern.is_empty() {
        let start = &job.pattern[..job.pattern.len().min(16)];
        told["pattern"] = json!({ "bytes": job.pattern.len(), "starts_with": start });
    }
    for (name, file) in [("read_iolog", &job.replay), ("write_iolog", &job.trace)] {
        if let Some(file) = file {
            told[name] = file.clone().into();
        }
    }
    if job.serialize_overlap {
        told["serialize_overlap"] = true.into();
    }
    if !job.logs.are_none() {
        told["logs"] = json!(job.logs);
    }
}

/// When a job's I/Os begin, and in which order, where that is said.
fn tell_pace(job: &Job, told: &mut Value) {
    let Thinking { ns, ios, io_ns, from_issue } = job.thinking;
    let Batching { submit, complete, low, .. } = job.batching;
    for (name, value) in [
        ("thinktime_ns", ns),
        ("thinktime_blocks", u64::from(ios)),
        ("thinktime_iotime_ns", io_ns),
        ("iodepth_batch", u64::from(submit)),
        ("iodepth_batch_complete_min", u64::from(complete)),
        ("iodepth_low", u64::from(low)),
        ("loops", if job.loops > 1 { u64::from(job.loops) } else { 0 }),
        ("blockalign", job.align.unwrap_or(0)),
    ] {
        if value > 0 {
            told[name] = value.into();
        }
    }
    if job.depth_in_use() > 1 {
        told["collect"] = collects(job).into();
    }
    if job.poll {
        told["poll"] = true.into();
    }
    if job.step != 0 {
        told["rw_step"] = job.step.into();
    }
    if job.offset_increment != Amount::Bytes(0) {
        told["offset_increment"] = json!(job.offset_increment);
    }
    if job.start_delay_ns != [0; 2] {
        told["startdelay_ns"] = json!(job.start_delay_ns);
    }
    if from_issue {
        told["thinktime_blocks_type"] = "issue".into();
    }
    if job.is_mapped() {
        told["random_map"] = true.into();
    }
    if job.durable {
        told["sync"] = true.into();
    }
    if let Some(buffered) = job.buffered {
        told["direct"] = (!buffered).into();
    }
    if let Some(moved) = job.io_size {
        told["io_size"] = json!(moved);
    }
    if let Some(Strides { bytes, range, skip }) = job.strides {
        told["zones"] = json!({ "zonesize": bytes, "zonerange": range, "zoneskip": skip });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_whether_its_ios_wait_for_others() {
        let target = weir::Target::parse("null:1MiB").expect("a target");
        let device = weir::open("bench", &target, 1).expect("it opens").device;
        let told = |job: &Job| job_json(job, &device)["collect"].clone();
        let deep = Job { depth: 32, ..Job::default() };
        assert_eq!(told(&deep), Value::Bool(true));
        assert_eq!(told(&Job::default()), Value::Null, "there are no others");
        let at_once = Batching { at_once: true, ..deep.batching };
        let submit = Batching { submit: 4, ..deep.batching };
        for batching in [at_once, submit] {
            assert_eq!(told(&Job { batching, ..deep.clone() }), Value::Bool(false));
        }
        assert_eq!(told(&Job { rate: [100; 3], ..deep }), Value::Bool(false), "they are due");
    }
}
