//! Messages to a multipath device, as `dmsetup message DEVICE 0 ...` sends them.

use weir_bio::Nanos;

use super::Control;

const KNOWN: &str = "queue_if_no_path, fail_if_no_path, disable_group N, enable_group N, \
                     switch_group N, fail_path PATH, reinstate_path PATH";

impl Control {
    /// Does what a message says.
    ///
    /// # Errors
    /// A sentence: it is not known, its group or path is not there, or the device is suspended.
    pub fn message(&mut self, text: &str, now: Nanos) -> Result<(), String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if self.saved_queueing.is_some() {
            return Err(format!("message {text:?}: the device is busy, it is suspended"));
        }
        match words[..] {
            ["queue_if_no_path"] => self.set_queueing(true, now),
            ["fail_if_no_path"] => self.set_queueing(false, now),
            ["disable_group", number] => {
                let group = self.group_named(number)?;
                self.groups[group].is_bypassed = true;
                // The group in use is looked for anew.
                if self.current == Some(group) {
                    self.leave_group();
                }
                self.next = self.next.filter(|next| *next != group);
                self.changed();
            }
            ["enable_group", number] => {
                let group = self.group_named(number)?;
                self.groups[group].is_bypassed = false;
                self.changed();
            }
            ["switch_group", number] => {
                let group = self.group_named(number)?;
                self.switch_group(group);
            }
            ["fail_path", name] => {
                let path = self.path_named(name)?;
                self.fail(path, "a message said so", now);
            }
            ["reinstate_path", name] => {
                let path = self.path_named(name)?;
                self.reinstate(path, "a message said so", now);
            }
            [] => return Err(format!("an empty message; known are {KNOWN}")),
            _ => return Err(format!("message {text:?} is not known; known are {KNOWN}")),
        }
        Ok(())
    }

    fn set_queueing(&mut self, on: bool, now: Nanos) {
        if std::mem::replace(&mut self.queue_if_no_path, on) == on {
            return;
        }
        self.changed();
        self.no_path_until.clear();
        if self.valid() == 0 {
            self.lose_last(now);
        }
    }

    fn group_named(&self, number: &str) -> Result<usize, String> {
        let groups = self.groups.len();
        match number.parse::<usize>() {
            Ok(number) if (1..=groups).contains(&number) => Ok(number - 1),
            _ => Err(format!("priority group {number} is outside 1..={groups}")),
        }
    }

    fn path_named(&self, name: &str) -> Result<usize, String> {
        self.path(name).ok_or_else(|| {
            let names: Vec<&str> = self.table.paths().map(|path| path.device.as_str()).collect();
            format!("path {name} is none of {}", names.join(", "))
        })
    }
}
