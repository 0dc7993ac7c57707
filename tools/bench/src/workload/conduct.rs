//! Conducts a bench: opens the targets, runs stage after stage, and puts the results together.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir::{Backing, Device, Target};
use weir_load::oltp::Profile;
use weir_load::presets::Stage;
use weir_load::{Amount, Job};
use weir_trace::document::Bench;

use crate::engine::commits;
use crate::engine::run::{self, Load, Measured, Progress};
use crate::results::outcome::{About, outcome};
use crate::workload::content;
use crate::workload::devices::{self, Devices};
use crate::workload::files::Files;
use crate::workload::groups::{self, Groups, UNIT_BYTES};
use crate::workload::memory::Memory;
use crate::workload::spec::{Oltp, RunSpec, Workload};
use crate::workload::told::{device_json, job_json};
use crate::workload::{experiment, patience, prepare, threads};

/// A bench to conduct.
pub struct Request<'a> {
    /// What is run, where, and for how long.
    pub spec: RunSpec,
    /// A number that tells this run from others that left their redo on the same target.
    pub run: u64,
    /// Where acknowledged commits are told.
    pub commits: Option<&'a File>,
    /// Set to end it early.
    pub interrupted: &'a AtomicBool,
    /// Called every tenth of a second.
    pub progress: &'a dyn Fn(&Progress),
    /// Told what a person should know.
    pub notice: &'a dyn Fn(&str),
}

/// The outcome.
pub struct Conducted {
    /// The figures.
    pub bench: Bench,
    /// The measurements behind them, by stage.
    pub measured: Vec<(Option<String>, Measured)>,
    /// Why it ended early, if it did.
    pub failure: Option<String>,
}

/// Carries it out.
///
/// # Errors
/// A fault of a job or a target, before anything ran. The failure of a later stage is in
/// [`Conducted::failure`], beside the figures of the stages before it.
pub fn conduct(request: &Request<'_>) -> Result<Conducted, String> {
    let stages = match &request.spec.workload {
        Workload::Stages(stages) => stages.clone(),
        Workload::Oltp(_) => vec![Stage { name: None, jobs: Vec::new() }],
    };
    let files = Files::of(&stages, request.spec.target.as_deref());
    if !request.spec.destroy {
        content::refuse(&written(&request.spec, &stages, &files)?)?;
    }
    stages.iter().try_for_each(|stage| may_poll(stage, &files))?;
    let (spec, interrupted) = (&request.spec, request.interrupted);
    let before = prepare::persistent(&prepare::Asked { spec, interrupted, tell: request.notice })?;
    let (mut measured, mut failure, mut about) = (Vec::new(), None, None);
    let mut memory = Memory::of(&stages, threads::of, before);
    let count = u32::try_from(stages.len()).unwrap_or(1);
    for stage in &stages {
        if !measured.is_empty() && request.interrupted.load(Ordering::Acquire) {
            failure = Some(String::from("interrupted"));
            break;
        }
        let run = Opened::open(request, stage, &files, &mut memory).and_then(|opened| {
            let about = about.get_or_insert_with(|| opened.about(request, &stages));
            opened.tell_stage(request, stage, measured.len(), &stages, about);
            opened.run(request, stage, request.spec.runtime.map(|runtime| runtime / count))
        });
        let part = match run {
            Ok(part) => part,
            Err(why) if measured.is_empty() => return Err(why),
            Err(why) => {
                let name = stage.name.as_deref().unwrap_or("a later stage");
                failure = Some(format!("{name}: {why}"));
                break;
            }
        };
        failure = part.failure.clone();
        measured.push((stage.name.clone(), part));
        if failure.is_some() {
            break;
        }
    }
    let about = about.ok_or("there is nothing to run")?;
    let Memory { prepared, undurable, .. } = memory;
    let bench = Bench { prepared, durability_disabled: undurable, ..outcome(about, &measured) };
    Ok(Conducted { bench, measured, failure })
}

/// The devices that a run writes.
fn written(
    spec: &RunSpec,
    stages: &[Stage],
    files: &Files<'_>,
) -> Result<Vec<(String, Target)>, String> {
    let written = match &spec.workload {
        Workload::Oltp(oltp) => Devices::of_groups(&[&oltp.data[..], &oltp.redo].concat()),
        Workload::Stages(_) => {
            let jobs = stages.iter().flat_map(|stage| &stage.jobs).filter(|job| job.changes());
            let targets = jobs.map(|job| files.target_of(job));
            Devices::of_jobs(&targets.collect::<Result<Vec<_>, _>>()?)
        }
    };
    Ok(written?.devices)
}

/// Why what was flushed to a device is not there after a crash, if that is so: of itself, or of
/// what it lies on.
fn forgets(target: &Target, barriers: bool) -> Option<&'static str> {
    let own = target.backing.keeps().forgets().or((!barriers).then_some("has barriers=off"));
    let nested = target.nested().unwrap_or_default();
    own.or_else(|| nested.iter().find_map(|(_, leg)| forgets(leg, leg.config.barriers)))
}

/// Tells of a disk on which the commits of `oltp` are not durable.
///
/// # Errors
/// Where a file of commits would say that they are.
fn tell_forgetful(
    request: &Request<'_>,
    name: &str,
    target: &Target,
    barriers: bool,
) -> Result<(), String> {
    let is_oltp = matches!(request.spec.workload, Workload::Oltp(_));
    let Some(why) = forgets(target, barriers).filter(|_| is_oltp) else { return Ok(()) };
    let what = format!("{name} {why}: no commit is durable there");
    if request.commits.is_some() {
        return Err(format!("{what}, and a file of commits would say they are"));
    }
    (request.notice)(&what);
    Ok(())
}

/// The notice on a file with holes, which are read without a disk.
#[must_use]
pub fn holes(name: &str, backing: &dyn Backing) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let file =
        std::fs::metadata(backing.path()?).ok().filter(|file| file.is_file() && file.len() > 0)?;
    let missing = file.len().saturating_sub(file.blocks() * 512);
    let percent = (100.0 * missing as f64 / file.len() as f64).round();
    (percent >= 1.0).then(|| {
        format!(
            "{percent} % of the bytes of {name} have never been written: no disk is asked when \
             they are read; write them first for figures of a disk"
        )
    })
}

/// Two names of one device are refused where a workload would spoil what another of its parts
/// relies on: the log of a database, or blocks that are verified. Their names do not tell, so marks
/// are written through them and looked for through all.
fn told_apart(
    request: &Request<'_>,
    stage: &Stage,
    devices: &[(String, Target)],
    disks: &[usize],
) -> Result<(), String> {
    let verified = stage.jobs.iter().any(|job| job.verify.is_some());
    let is_oltp = matches!(request.spec.workload, Workload::Oltp(_));
    if devices.len() < 2 || !(verified || is_oltp) {
        return Ok(());
    }
    // Marked blocks are written in the run anyway: the start of a disk of data or redo, all but the
    // first, or of a job's range.
    let marks: Vec<(usize, Amount)> = match request.spec.workload {
        Workload::Oltp(_) => (1..devices.len()).map(|disk| (disk, Amount::Bytes(0))).collect(),
        Workload::Stages(_) => {
            let writing = stage.jobs.iter().zip(disks).filter(|(job, _)| job.changes());
            writing.map(|(job, disk)| (*disk, job.offset)).collect()
        }
    };
    match devices::same_device(devices, &marks, request.run, request.interrupted)? {
        None => Ok(()),
        Some([one, two]) => Err(format!(
            "{one} and {two} are one device under two names, or one is a part of the other: what \
             is written through one is read through the other. Give both the same name, or another \
             device"
        )),
    }
}

/// Lets the jobs of a device read from the page cache, if that is what they are all to do and it
/// has one: whether that is so.
fn reads_from_cache(jobs: &[&Job], target: &mut Target) -> bool {
    let reads_cached = |job: &&Job| job.cached && !job.changes();
    if jobs.is_empty() || !jobs.iter().all(reads_cached) {
        return false;
    }
    target.backing.use_page_cache()
}

/// Opens the target with the page cache if that is what its jobs ask for.
///
/// # Errors
/// A target that has none; jobs that are not of one mind.
fn go_through_cache(jobs: &[&Job], name: &str, target: &mut Target) -> Result<(), String> {
    let Some(job) = jobs.iter().find(|job| job.buffered == Some(true)) else { return Ok(()) };
    if let Some(other) = jobs.iter().find(|job| job.buffered != Some(true)) {
        return Err(format!(
            "job {} has direct=0 and job {} on the same {name} has not: a target is opened once",
            job.name, other.name
        ));
    }
    match target.backing.use_page_cache() {
        true => Ok(()),
        false => Err(format!("job {} has direct=0, and {name} has no page cache here", job.name)),
    }
}

/// The devices that a stage reads from.
fn devices_read(groups: Option<&Groups>, stage: &Stage, disks: &[usize]) -> Vec<usize> {
    let jobs = stage.jobs.iter().zip(disks);
    let reads = jobs.filter(|(job, _)| job.directions().contains(&0)).map(|(_, disk)| *disk);
    groups.map_or_else(|| reads.collect(), |groups| groups.data.clone())
}

/// The devices of a stage.
struct Opened {
    names: Vec<String>,
    devices: Vec<Device>,
    /// Those that they lie on.
    below: Vec<Device>,
    /// Of each of the devices, whether it is read through the page cache.
    cached: Vec<bool>,
    /// The device of each job.
    disks: Vec<usize>,
    /// Those of the data and of the redo of `oltp`.
    groups: Option<Groups>,
    threads: usize,
    /// Whether any of them is on a block device of the kernel.
    of_kernel: bool,
}

/// What `oltp` runs on: the device of the data, and that of the redo unless they share it.
struct Grounds {
    devices: Vec<Device>,
    names: Vec<String>,
    /// The disks of groups, below their stripes.
    below: Vec<Device>,
}

/// Whether the threads of a stage that poll have a CPU each: said before anything is written.
fn may_poll(stage: &Stage, files: &Files<'_>) -> Result<(), String> {
    if !stage.jobs.iter().any(|job| job.poll) {
        return Ok(());
    }
    let wanted =
        stage.jobs.iter().map(|job| files.target_of(job)).collect::<Result<Vec<_>, _>>()?;
    let Devices { devices, .. } = Devices::of_jobs(&wanted)?;
    let of_kernel = devices.iter().any(|(name, target)| devices::is_of_kernel(name, target));
    threads::given(stage, threads::of(stage), of_kernel).map(|_| ())
}

impl Opened {
    fn open(
        request: &Request<'_>,
        stage: &Stage,
        files: &Files<'_>,
        memory: &mut Memory,
    ) -> Result<Opened, String> {
        let wanted: Vec<String> = match &request.spec.workload {
            Workload::Stages(_) => {
                stage.jobs.iter().map(|job| files.target_of(job)).collect::<Result<_, _>>()?
            }
            Workload::Oltp(oltp) => [&oltp.data[..], &oltp.redo].concat(),
        };
        let threads = threads::asked(&request.spec.workload, stage);
        let Devices { devices, of: disks } = match &request.spec.workload {
            Workload::Stages(_) => Devices::of_jobs(&wanted)?,
            Workload::Oltp(_) => Devices::of_groups(&wanted)?,
        };
        let groups = match &request.spec.workload {
            Workload::Oltp(Oltp { data, redo, .. }) => Some(Groups::of(data, redo, &disks)?),
            Workload::Stages(_) => None,
        };
        let devices_read = devices_read(groups.as_ref(), stage, &disks);
        told_apart(request, stage, &devices, &disks)?;
        let of_kernel = devices.iter().any(|(name, target)| devices::is_of_kernel(name, target));
        let asked = threads::given(stage, threads, of_kernel)?;
        let mut opened = Opened {
            names: Vec::new(),
            devices: Vec::new(),
            below: Vec::new(),
            cached: Vec::new(),
            disks,
            groups,
            threads: asked,
            of_kernel,
        };
        for (number, (name, mut target)) in devices.into_iter().enumerate() {
            let jobs = stage.jobs.iter().zip(&opened.disks).filter(|(_, disk)| **disk == number);
            let jobs: Vec<&Job> = jobs.map(|(job, _)| job).collect();
            let cached = reads_from_cache(&jobs, &mut target);
            go_through_cache(&jobs, &name, &mut target)?;
            if !jobs.is_empty() && !jobs.iter().any(|job| job.changes()) {
                devices::read_held(&mut target);
            }
            if let Some((device, below)) = memory.find(&name) {
                opened.below.extend(below);
                opened.devices.push(device);
                opened.cached.push(cached);
                opened.names.push(name);
                continue;
            }
            let homes = memory.threads.unwrap_or(threads);
            let made = devices::open_number(number, &name, &target, homes)?;
            made.notices.iter().chain(&made.warnings).for_each(|notice| (request.notice)(notice));
            let asking = (&request.spec, request.interrupted);
            let below = memory.prepare(asking, (&name, &target), &made, &jobs)?;
            // No disk is asked for what is in the page cache, whatever stands there.
            let asked = !cached && devices_read.contains(&number);
            for (name, leaf) in devices::leaves(&name, &target).iter().filter(|_| asked) {
                holes(name, leaf.backing.as_ref()).iter().for_each(|told| (request.notice)(told));
            }
            tell_forgetful(request, &name, &target, made.device.config().barriers)?;
            memory.keep(&name, &target, &made.device, &below);
            opened.below.extend(below);
            opened.devices.push(made.device);
            opened.cached.push(cached);
            opened.names.push(name);
        }
        Ok(opened)
    }

    fn run(
        &self,
        request: &Request<'_>,
        stage: &Stage,
        runtime: Option<Duration>,
    ) -> Result<Measured, String> {
        let (loads, heading, grounds) = match &request.spec.workload {
            Workload::Stages(_) => (self.streams(stage), String::new(), self.grounds(request)?),
            Workload::Oltp(oltp) => {
                let grounds = self.grounds(request)?;
                let (load, heading) = self.oltp(request, oltp, &grounds)?;
                (vec![load], heading, grounds)
            }
        };
        let memory = rustix::system::sysinfo();
        let half = u128::from(memory.totalram) * u128::from(memory.mem_unit) / 2;
        check_memory(&loads, &grounds.devices, half)?;
        let ramp = stage.jobs.iter().map(|job| Duration::from_nanos(job.ramp_ns)).max();
        let endless = |job: &Job| job.time_based && job.runtime_ns.is_none();
        if let Some(job) = stage.jobs.iter().find(|job| runtime.is_none() && endless(job)) {
            return Err(format!("job {} is time_based and has no runtime", job.name));
        }
        if runtime.is_none() && stage.jobs.is_empty() {
            return Err(String::from("oltp needs a runtime"));
        }
        self.tell_unseen(request, stage, runtime);
        for (job, disk) in stage.jobs.iter().zip(&self.disks) {
            let told = experiment::expected(job, &self.names[*disk], &self.devices[*disk]);
            told.iter().for_each(|told| (request.notice)(told));
        }
        run::run(&run::Options {
            loads: &loads,
            devices: grounds.devices.iter().collect(),
            below: &grounds.below,
            names: &grounds.names,
            threads: self.threads,
            ramp: ramp.unwrap_or_default().max(request.spec.ramp),
            runtime,
            interrupted: request.interrupted,
            commits: request.commits,
            heading: &heading,
            progress: request.progress,
        })
    }

    /// Says for which deadlines of its schedulers the stage is too short.
    fn tell_unseen(&self, request: &Request<'_>, stage: &Stage, runtime: Option<Duration>) {
        let of_jobs = || stage.jobs.iter().filter_map(|job| job.runtime_ns).max();
        let Some(window) = runtime.or_else(|| of_jobs().map(Duration::from_nanos)) else { return };
        for (number, (name, device)) in self.names.iter().zip(&self.devices).enumerate() {
            let own = stage.jobs.iter().zip(&self.disks).filter(|(_, disk)| **disk == number);
            let own: Vec<&Job> = own.map(|(job, _)| job).collect();
            let does = [0, 1].map(|direction| {
                stage.jobs.is_empty() || own.iter().any(|job| job.directions().contains(&direction))
            });
            let told = patience::unseen(name, device, does, window);
            told.iter().for_each(|told| (request.notice)(told));
        }
    }

    fn streams(&self, stage: &Stage) -> Vec<Load> {
        let jobs = stage.jobs.iter().zip(&self.disks);
        jobs.map(|(job, disk)| Load::Stream { job: Box::new(job.clone()), disk: *disk }).collect()
    }

    /// The devices that the loads run on: those that are open, or of `oltp` that of the data and
    /// that of the redo, each a disk alone or a stripe over its group.
    fn grounds(&self, request: &Request<'_>) -> Result<Grounds, String> {
        let Some(groups) = &self.groups else {
            let (devices, names) = (self.devices.clone(), self.names.clone());
            return Ok(Grounds { devices, names, below: self.below.clone() });
        };
        let sizes = self.devices.iter().map(|device| run::ground(device).bytes);
        groups.check(&self.names.iter().cloned().zip(sizes).collect::<Vec<_>>())?;
        let (devices, names) = (Vec::new(), Vec::new());
        let mut grounds = Grounds { devices, names, below: self.below.clone() };
        let redo = (!groups.is_shared()).then_some(&groups.redo);
        for members in [&groups.data].into_iter().chain(redo) {
            let names: Vec<&str> = members.iter().map(|disk| self.names[*disk].as_str()).collect();
            let disks: Vec<Device> =
                members.iter().map(|disk| self.devices[*disk].clone()).collect();
            grounds.names.push(names.join(" "));
            if let [alone] = &disks[..] {
                grounds.devices.push(alone.clone());
                continue;
            }
            let said = |text: &str| devices::of_group(&names, members, text);
            let group = groups::open(&disks, self.threads);
            let group = group.map_err(|why| format!("{}: {}", names.join(" "), said(&why)))?;
            group.notices.iter().for_each(|notice| (request.notice)(&said(notice)));
            grounds.below.extend(disks);
            grounds.devices.push(group.device);
        }
        Ok(grounds)
    }

    /// An instance for each thread, with its part of the sessions, of the data and of the redo; and
    /// what the file of commits says of them first.
    fn oltp(
        &self,
        request: &Request<'_>,
        oltp: &Oltp,
        grounds: &Grounds,
    ) -> Result<(Load, String), String> {
        let groups = self.groups.as_ref().ok_or("oltp has no target: --target TARGET")?;
        let (data, redo) = (0, grounds.devices.len() - 1);
        let sizes = [data, redo].map(|device| run::ground(&grounds.devices[device]).bytes);
        let instances = u16::try_from(self.threads).unwrap_or(u16::MAX);
        let parts = groups.parts(instances, &self.names, sizes)?;
        let sessions = u32::from(oltp.users) * u32::from(oltp.threads);
        let profiles = parts.iter().enumerate().map(|(number, part)| Profile {
            sessions: ((sessions + number as u32) / u32::from(instances)).min(u32::from(u16::MAX))
                as u16,
            update_percent: oltp.update_percent,
            hot: oltp.hot,
            run: request.run,
            instance: number as u16,
            seed: request.spec.seed.wrapping_add((number as u64).wrapping_mul(0x9E37_79B9)),
            data: part.data,
            redo: part.redo,
        });
        let profiles = profiles.collect();
        let targets = if groups.is_shared() { &[] } else { &oltp.redo[..] };
        let heading = commits::heading(request.run, [&oltp.data, targets], &parts);
        Ok((Load::Oltp { name: String::from("oltp"), profiles, data, redo }, heading))
    }

    fn about(&self, request: &Request<'_>, stages: &[Stage]) -> About {
        let mut target = request.spec.target.clone().unwrap_or_else(|| self.names.join(" "));
        let job = match &request.spec.workload {
            Workload::Oltp(oltp) => {
                target = oltp.data.join(" ");
                self.oltp_json(request, oltp)
            }
            Workload::Stages(_) => match stages {
                [Stage { jobs, .. }] if jobs.len() == 1 => {
                    job_json(&jobs[0], &self.devices[self.disks[0]])
                }
                stages => {
                    // Later stages run on the one target that is given for all.
                    let disks = self.disks.iter().copied().chain(std::iter::repeat(0));
                    let jobs = stages.iter().flat_map(|stage| &stage.jobs).zip(disks);
                    let jobs: Vec<_> = jobs.map(|(job, disk)| self.job_json(job, disk)).collect();
                    json!({ "jobs": jobs })
                }
            },
        };
        let jobs = || stages.iter().flat_map(|stage| &stage.jobs);
        About {
            target,
            options: device_json(&self.devices[0]),
            job,
            seed: request.spec.seed,
            of_kernel: self.of_kernel,
            verifies: jobs().any(|job| job.verify.is_some()),
        }
    }

    /// Puts what is known of a later stage's jobs in the place of what was guessed.
    fn tell_stage(
        &self,
        request: &Request<'_>,
        stage: &Stage,
        number: usize,
        stages: &[Stage],
        about: &mut About,
    ) {
        if number == 0 || request.spec.target.is_some() {
            return;
        }
        let before: usize = stages[..number].iter().map(|stage| stage.jobs.len()).sum();
        for (index, (job, disk)) in stage.jobs.iter().zip(&self.disks).enumerate() {
            let mut told = self.job_json(job, *disk);
            told["target"] = self.names[*disk].clone().into();
            about.job["jobs"][before + index] = told;
        }
        let known: Vec<String> = about.target.split(' ').map(String::from).collect();
        let new = self.names.iter().filter(|name| !known.contains(name));
        new.for_each(|name| about.target.push_str(&format!(" {name}")));
    }

    /// `oltp`, with each disk of its groups where they have more than one.
    fn oltp_json(&self, request: &Request<'_>, oltp: &Oltp) -> Value {
        let redo = self.groups.iter().filter(|groups| !groups.is_shared()).map(|g| &g.redo[..]);
        let redo = redo.flatten().copied().collect::<Vec<_>>();
        let data = self.groups.as_ref().map_or(&[][..], |groups| &groups.data);
        let mut told = json!({
            "preset": "oltp", "users": oltp.users, "threads": oltp.threads,
            "update": oltp.update_percent, "hot": [oltp.hot.access, oltp.hot.size],
            "instances": self.threads, "ramp_time_ns": request.spec.ramp.as_nanos() as u64,
            "redo": (!redo.is_empty()).then(|| oltp.redo.join(" ")),
            "redo_options": redo.first().map(|disk| device_json(&self.devices[*disk])),
        });
        if data.len() > 1 || redo.len() > 1 {
            let disk = |disk: &usize| {
                let options = device_json(&self.devices[*disk]);
                json!({ "target": self.names[*disk], "options": options })
            };
            told["stripe"] = UNIT_BYTES.into();
            told["data_disks"] = data.iter().map(disk).collect();
            told["redo_disks"] = redo.iter().map(disk).collect();
        }
        told
    }

    /// A job, and where it runs if there is more than one place.
    fn job_json(&self, job: &Job, disk: usize) -> Value {
        let mut told = job_json(job, &self.devices[disk]);
        if job.cached {
            told["page_cache"] = self.cached[disk].into();
        }
        if self.devices.len() > 1 {
            told["target"] = self.names[disk].clone().into();
            told["options"] = device_json(&self.devices[disk]).into();
        }
        told
    }
}

/// Every I/O under way has a buffer, and clones keep track of places and blocks. A machine out of
/// memory ends programs at will, and memory that is taken page by page is missed in mid-run.
fn check_memory(loads: &[Load], devices: &[Device], most: u128) -> Result<(), String> {
    let mut sum = 0;
    for load in loads {
        let Load::Stream { job, disk } = load else { continue };
        let (jobs, depth, bs) = (job.clones, job.depth, job.buffer_bytes());
        let buffers = u128::from(jobs) * u128::from(depth) * u128::from(bs);
        let kept = job.kept_bytes(run::ground(&devices[*disk]));
        sum += buffers + u128::from(kept);
        if sum > most {
            return Err(format!(
                "job {}: numjobs={jobs} times iodepth={depth} times bs={bs} are {buffers} bytes of \
                 buffers, and the places and blocks that its clones keep track of take {kept}: \
                 with the jobs before it {sum}, above {most}, half of this machine's memory",
                job.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Class, IoPrio};
    use weir_load::{Direction, Sizes, Verify, Zone};

    fn request<'a>(workload: Workload, interrupted: &'a AtomicBool) -> Request<'a> {
        Request {
            spec: RunSpec::of(workload),
            run: 1,
            commits: None,
            interrupted,
            progress: &|_| (),
            notice: &|_| (),
        }
    }

    /// Reads 64 KiB of a target.
    fn stage(name: &str, target: &str) -> Stage {
        let job = Job {
            target: Some(String::from(target)),
            size: Some(Amount::Bytes(65536)),
            ..Job::default()
        };
        Stage { name: Some(String::from(name)), jobs: vec![job] }
    }

    #[test]
    fn what_was_measured_is_kept_when_a_later_stage_finds_no_target() {
        let stages = vec![stage("one", "null:1MiB"), stage("two", "file:/nonexistent/disk")];
        let running = AtomicBool::new(false);
        let conducted = conduct(&request(Workload::Stages(stages), &running)).expect("figures");
        assert_eq!((conducted.measured.len(), conducted.bench.figures.ios), (1, 16));
        let why = conducted.failure.expect("a failure");
        assert!(why.starts_with("two: ") && why.contains("/nonexistent/disk"), "{why}");
        let first = vec![stage("two", "file:/nonexistent/disk")];
        assert!(conduct(&request(Workload::Stages(first), &running)).is_err());
    }

    #[test]
    fn each_job_is_told_with_the_device_it_runs_on() {
        let job = |name: &str, target: &str, seed| Job {
            name: String::from(name),
            target: Some(String::from(target)),
            offset: Amount::Bytes(65536),
            runtime_ns: Some(1_000_000),
            seed,
            ..Job::default()
        };
        let jobs = vec![job("a", "null:1MiB", 3), job("b", "null:2MiB,nr_requests=8", 4)];
        let running = AtomicBool::new(false);
        let stages = Workload::Stages(vec![Stage { name: None, jobs }]);
        let told = conduct(&request(stages, &running)).expect("figures").bench.job;
        assert_eq!(told["jobs"][0]["size"], (1 << 20) - 65536);
        assert_eq!(told["jobs"][1]["size"], (2 << 20) - 65536);
        assert_eq!(told["jobs"][1]["options"]["nr_requests"], 8);
        assert_eq!(told["jobs"][1]["randseed"], 4);
    }

    #[test]
    fn priority_ramp_and_verify_of_a_job_are_told_where_they_are_set() {
        let target = weir::Target::parse("null:1MiB").expect("a target");
        let device = devices::open("null:1MiB", &target, 1).expect("it opens").device;
        let ioprio = IoPrio::new(Class::RealTime, 3);
        let (ramp_ns, verify) = (5_000_000, Some(Verify::Crc32c));
        let told = job_json(&Job { ioprio, ramp_ns, verify, ..Job::default() }, &device);
        assert_eq!([&told["prioclass"], &told["prio"]], [1, 3]);
        assert_eq!((&told["ramp_time_ns"], &told["verify"]), (&5_000_000.into(), &"crc32c".into()));
        let told = job_json(&Job::default(), &device);
        for field in ["prioclass", "prio", "ramp_time_ns", "verify"] {
            assert!(told.get(field).is_none(), "{told}");
        }
    }

    #[test]
    fn a_file_that_was_never_written_is_told_to_have_holes() {
        let path = std::env::temp_dir().join(format!("weir-holes-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        file.set_len(1 << 20).expect("a length");
        let backing = weir::Target::parse(&format!("file:{}", path.display())).expect("a target");
        let notice = holes("it", backing.backing.as_ref()).expect("a notice");
        assert!(notice.starts_with("100 % of the bytes of it"), "{notice}");
        std::fs::write(&path, [1; 8192]).expect("a file");
        file.sync_all().expect("a file");
        assert_eq!(holes("it", backing.backing.as_ref()), None);
        std::fs::remove_file(&path).expect("a file of ours");
    }

    #[test]
    fn commits_that_are_not_durable_are_told_and_not_written_down() {
        let hot = Zone { access: 80, size: 20 };
        let (data, redo) = (vec![String::from("ram:64MiB")], Vec::new());
        let oltp = Oltp { users: 1, threads: 1, update_percent: 25, hot, data, redo };
        let (running, told) = (AtomicBool::new(false), std::cell::RefCell::new(Vec::new()));
        let notice = |notice: &str| told.borrow_mut().push(String::from(notice));
        let mut request = request(Workload::Oltp(oltp), &running);
        request.spec.runtime = Some(Duration::from_millis(1));
        request.notice = &notice;
        assert!(conduct(&request).is_ok());
        assert!(told.borrow().iter().any(|notice| notice.contains("no commit is durable")));
        let commits = File::open("/dev/null").expect("a file");
        request.commits = Some(&commits);
        let why = conduct(&request).err().expect("a refusal");
        assert!(why.starts_with("ram:64MiB is memory of this program"), "{why}");
    }

    #[test]
    fn memory_of_one_size_is_as_many_disks_as_it_is_named_in_groups_and_one_for_jobs() {
        let hot = Zone { access: 80, size: 20 };
        let ram = || String::from("ram:32MiB");
        let (data, redo) = (vec![ram(), ram()], vec![ram()]);
        let oltp = Oltp { users: 1, threads: 1, update_percent: 25, hot, data, redo };
        let running = AtomicBool::new(false);
        let mut groups = request(Workload::Oltp(oltp), &running);
        groups.spec.runtime = Some(Duration::from_millis(1));
        let told = conduct(&groups).expect("figures").bench.job;
        let disks = |name: &str| told[name].as_array().map(Vec::len);
        assert_eq!([disks("data_disks"), disks("redo_disks")], [Some(2), Some(1)], "{told}");
        let jobs = [stage("a", "ram:1MiB"), stage("b", "ram:1MiB")].map(|s| s.jobs).concat();
        let jobs = Workload::Stages(vec![Stage { name: None, jobs }]);
        let told = conduct(&request(jobs, &running)).expect("figures").bench.job;
        assert!(told["jobs"][0]["target"].is_null(), "there is one place: {told}");
    }

    #[test]
    fn a_file_is_made_as_long_as_the_last_stage_needs_it() {
        let folder = std::env::temp_dir().join(format!("weir-grown-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let job = |files: &[&str], kib: u64, direction| Job {
            target: Some(
                files
                    .iter()
                    .map(|name| folder.join(name).display().to_string())
                    .collect::<Vec<_>>()
                    .join(":"),
            ),
            size: Some(Amount::Bytes(kib << 10)),
            direction,
            ..Job::default()
        };
        let jobs = [
            job(&["a"], 64, Direction::Write),
            job(&["a"], 128, Direction::Read),
            job(&["b", "a"], 512, Direction::Write),
        ];
        let stages = jobs.map(|job| Stage { name: None, jobs: vec![job] });
        let running = AtomicBool::new(false);
        let conducted = conduct(&request(Workload::Stages(stages.to_vec()), &running));
        let conducted = conducted.expect("figures");
        assert_eq!(conducted.failure, None);
        assert_eq!(conducted.bench.figures.ios, (64 + 128 + 512) / 4);
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn a_target_is_opened_in_one_way_and_files_take_turns_by_one_size() {
        let mut target = Target::parse("ram:1MiB").expect("a target");
        let [through, past] = [Some(true), None].map(|buffered| Job { buffered, ..Job::default() });
        let why = go_through_cache(&[&through, &past], "disk", &mut target).unwrap_err();
        assert!(why.contains("the same disk has not: a target is opened once"), "{why}");
        assert_eq!(go_through_cache(&[&past], "disk", &mut target), Ok(()));
        let sizes = [4096, 8192, 4096].map(Sizes::Fixed);
        let files = Some(String::from("/x:/y"));
        let job = Job { target: files, sizes, direction: Direction::Mixed, ..Job::default() };
        let why = Files::of(&[], None).target_of(&job).unwrap_err();
        assert!(why.contains("take turns by I/Os of one size: filename=/x:/y"), "{why}");
        let job = Job { direction: Direction::Write, ..job };
        let target = Files::of(&[], None).target_of(&job);
        assert_eq!(target.as_deref(), Ok("striped:8192:file:/x+file:/y"));
    }

    #[test]
    fn memory_that_clones_keep_track_in_counts_beside_buffers() {
        let device = |name: &str| {
            let target = weir::Target::parse(name).expect("a target");
            devices::open(name, &target, 1).expect("it opens").device
        };
        let devices = [device("null:1GiB"), device("null:2GiB")];
        // In cells of 512 bytes: 256 KiB a clone and GiB.
        let sizes = [0; 3].map(|_| Sizes::Range { least: 512, most: 4096 });
        let access = weir_load::Access::Random;
        let map = Job { access, map: true, sizes, clones: 4, depth: 2, ..Job::default() };
        let verify = Job {
            verify: Some(Verify::Crc32c),
            size: Some(Amount::Bytes(1 << 20)),
            ..Job::default()
        };
        let loads =
            [(map, 1), (verify, 0)].map(|(job, disk)| Load::Stream { job: job.into(), disk });
        let least = 4 * (512 << 10) + 4 * 2 * 4096 + (4 << 20) / 4096 + 4096;
        assert_eq!(check_memory(&loads, &devices, least), Ok(()));
        let why = check_memory(&loads, &devices, least - 1).expect_err("one byte too many");
        assert!(why.contains(&format!("{least}, above {}", least - 1)), "{why}");
    }

    #[test]
    fn what_stands_for_a_disk_says_whether_it_forgets() {
        let forgets = |target: &str, barriers| {
            forgets(&weir::Target::parse(target).expect("a target"), barriers)
        };
        assert_eq!(forgets("null:1M", true), Some("drops what is written"));
        assert_eq!(forgets("file:x", true), None);
        assert_eq!(forgets("file:x", false), Some("has barriers=off"));
        assert_eq!(forgets("striped:64K:file:x+file:y", true), None);
        let above = ["linear:file:x+ram:1M", r"linear:file:x+file:y\,barriers=off"];
        assert_eq!(forgets(above[0], true), Some("is memory of this program"));
        assert_eq!(forgets(above[1], true), Some("has barriers=off"));
    }

    #[test]
    fn a_sweep_that_is_interrupted_between_two_stages_says_so() {
        let stages = vec![stage("one", "null:1MiB"), stage("two", "null:1MiB")];
        let interrupted = AtomicBool::new(false);
        let mut request = request(Workload::Stages(stages), &interrupted);
        // The first stage has ended when this is told, so it does not see the flag any more.
        let tell = |progress: &Progress| interrupted.store(progress.ios == 16, Ordering::Release);
        request.progress = &tell;
        let conducted = conduct(&request).expect("figures");
        assert_eq!(conducted.measured.len(), 1);
        assert_eq!(conducted.failure.as_deref(), Some("interrupted"));
    }

    #[test]
    fn the_cached_part_of_hdparm_reads_a_file_through_the_page_cache_and_the_other_past_it() {
        let path = std::env::temp_dir().join(format!("weir-cached-{}", std::process::id()));
        std::fs::write(&path, vec![1; 4 << 20]).expect("a file");
        let (running, told) = (AtomicBool::new(false), std::cell::RefCell::new(Vec::new()));
        // What such a short run does not see of a scheduler is told as well.
        let is_of_target = |notice: &str| !notice.contains("are measured");
        let notice = |notice: &str| {
            told.borrow_mut().extend(is_of_target(notice).then(|| String::from(notice)));
        };
        let page_cache = |target: &str| {
            let stages = weir_load::presets::stages("hdparm").expect("a preset");
            let mut request = request(Workload::Stages(stages), &running);
            request.spec.target = Some(String::from(target));
            request.spec.runtime = Some(Duration::from_millis(4));
            request.notice = &notice;
            let job = conduct(&request).expect("figures").bench.job;
            [0, 1].map(|stage: usize| job["jobs"][stage]["page_cache"].clone())
        };
        let target = format!("file:{}", path.display());
        assert_eq!(page_cache(&target), [Value::Bool(true), Value::Null]);
        // Not every file system has direct I/O.
        let alone = devices::open(&target, &Target::parse(&target).expect("a target"), 1);
        let notices = alone.expect("it opens").notices;
        let told_of_both = told.take();
        let (cached, buffered) = told_of_both.split_at(told_of_both.len() - notices.len());
        assert!(cached.iter().any(|notice| notice.contains("buffered I/O")), "{cached:?}");
        assert_eq!(buffered, notices);
        assert_eq!(page_cache("ram:4MiB"), [Value::Bool(false), Value::Null]);
        let write = Job { direction: Direction::Write, cached: true, ..Job::default() };
        let mut file = Target::parse(&target).expect("a target");
        assert!(!reads_from_cache(&[&write], &mut file), "nothing is written to a cache alone");
        std::fs::remove_file(&path).expect("a file of ours");
    }
}
