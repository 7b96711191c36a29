//! Answers on a schedule that the world did not give.

/// What the client gets instead.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A status with a body and headers.
    Status(u16, String, Vec<(&'static str, String)>),
    /// The connection ends in the middle of the answer.
    Cut,
}

/// One fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// `POST`, or empty for any.
    pub method: &'static str,
    /// What the path ends with, or empty for any. `*` stands for one segment.
    pub path: &'static str,
    /// Matching requests that still pass.
    pub skip: u32,
    /// Requests it meets after that.
    pub times: u32,
    /// Whether the world changes before the client gets the wrong answer.
    pub after_effect: bool,
    pub answer: Answer,
}

impl Fault {
    /// Answers the next request to a path with a status.
    pub fn status(method: &'static str, path: &'static str, status: u16) -> Self {
        let body = format!(r#"{{"message":"fault {status}"}}"#);
        let answer = Answer::Status(status, body, Vec::new());
        Self { method, path, skip: 0, times: 1, after_effect: false, answer }
    }

    pub fn cut(method: &'static str, path: &'static str) -> Self {
        Self { answer: Answer::Cut, ..Self::status(method, path, 500) }
    }

    pub fn body(mut self, text: &str) -> Self {
        if let Answer::Status(_, body, _) = &mut self.answer {
            *body = text.to_owned();
        }
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Answer::Status(_, _, headers) = &mut self.answer {
            headers.push((name, value.to_owned()));
        }
        self
    }

    pub fn after_effect(mut self) -> Self {
        self.after_effect = true;
        self
    }

    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    pub fn skip(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    fn meets(&self, method: &str, path: &str) -> bool {
        let wanted: Vec<&str> = self.path.rsplit('/').collect();
        let given: Vec<&str> = path.rsplit('/').collect();
        (self.method.is_empty() || self.method == method)
            && (self.path.is_empty()
                || (given.len() >= wanted.len()
                    && wanted.iter().zip(&given).all(|(w, g)| *w == "*" || w == g)))
    }
}

/// Takes the fault that meets a request, if any.
pub fn take(faults: &mut Vec<Fault>, method: &str, path: &str) -> Option<Fault> {
    let index = faults.iter().position(|fault| fault.meets(method, path))?;
    let fault = &mut faults[index];
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    let taken = fault.clone();
    if fault.times == 0 {
        faults.remove(index);
    }
    Some(taken)
}
