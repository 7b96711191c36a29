//! Which rule a result belongs to: by index, guid or (hierarchical) id, in the driver or an
//! extension; and what that rule says.

use std::collections::HashMap;

use serde_json::Value;

use super::super::json::At;
use super::super::{IntakeError, text};
use super::severity_of;
use crate::model::{Level, Severity};

/// The rules of a run.
pub(super) struct Rules<'v> {
    /// The driver, then the extensions.
    components: Vec<Component<'v>>,
    by_id: HashMap<&'v str, Slot>,
    by_guid: HashMap<&'v str, Slot>,
    /// Per invocation.
    overrides: Vec<Vec<Override<'v>>>,
    taxonomies: Vec<&'v Value>,
}

/// Component and rule index.
type Slot = (usize, usize);

struct Component<'v> {
    value: &'v Value,
    rules: Vec<&'v Value>,
}

struct Override<'v> {
    id: Option<&'v str>,
    slot: Option<Slot>,
    level: &'v str,
}

/// The rule of one result.
pub(super) struct RuleUse<'v> {
    /// As the result calls it, else as the rule does.
    pub id: Option<String>,
    /// From the invocation's configuration or the rule's default.
    pub level: Option<&'v str>,
    /// The descriptor, where there is one.
    pub descriptor: Option<&'v Value>,
    taxonomies: Vec<&'v Value>,
}

impl<'v> Rules<'v> {
    pub fn read(run: &At<'_, 'v>) -> Result<Self, IntakeError> {
        let mut rules = Self {
            components: Vec::new(),
            by_id: HashMap::new(),
            by_guid: HashMap::new(),
            overrides: Vec::new(),
            taxonomies: run.objects("taxonomies")?.iter().map(|t| t.value).collect(),
        };
        if let Some(tool) = run.object("tool")? {
            match tool.object("driver")? {
                Some(driver) => rules.add(&driver)?,
                None => rules.components.push(Component { value: &Value::Null, rules: Vec::new() }),
            }
            for extension in tool.objects("extensions")? {
                rules.add(&extension)?;
            }
        }
        for invocation in run.objects("invocations")? {
            let mut list = Vec::new();
            for entry in invocation.objects("ruleConfigurationOverrides")? {
                let level = match entry.object("configuration")? {
                    Some(configuration) => configuration.text("level")?,
                    None => None,
                };
                if let (Some(level), Some(reference)) = (level, entry.object("descriptor")?) {
                    let (id, slot) = rules.resolve(&reference, None, None)?;
                    list.push(Override { id, slot, level });
                }
            }
            rules.overrides.push(list);
        }
        Ok(rules)
    }

    fn add(&mut self, component: &At<'_, 'v>) -> Result<(), IntakeError> {
        let at = self.components.len();
        let rules: Vec<&'v Value> = component.objects("rules")?.iter().map(|r| r.value).collect();
        for (index, rule) in rules.iter().enumerate() {
            let text = |key: &str| rule.get(key).and_then(Value::as_str);
            if let Some(id) = text("id") {
                self.by_id.entry(id).or_insert((at, index));
            }
            if let Some(guid) = text("guid") {
                self.by_guid.entry(guid).or_insert((at, index));
            }
        }
        // Old ids come after all present ones of the component.
        for (index, rule) in rules.iter().enumerate() {
            let old = rule.get("deprecatedIds").and_then(Value::as_array).into_iter().flatten();
            for id in old.filter_map(Value::as_str) {
                self.by_id.entry(id).or_insert((at, index));
            }
        }
        self.components.push(Component { value: component.value, rules });
        Ok(())
    }

    /// The rule of a result.
    pub fn of(&self, result: &At<'_, 'v>) -> Result<RuleUse<'v>, IntakeError> {
        let id = filled(result.text("ruleId")?);
        let index = result.index("ruleIndex")?;
        let (id, slot) = match result.object("rule")? {
            Some(reference) => self.resolve(&reference, id, index)?,
            None => (id, self.slot(0, id, index, None)),
        };
        let descriptor = slot
            .and_then(|(component, rule)| self.components.get(component)?.rules.get(rule).copied());
        let own_id = descriptor.and_then(|d| filled(d.get("id")?.as_str()));
        let default =
            descriptor.and_then(|d| d.get("defaultConfiguration")?.get("level")?.as_str());
        Ok(RuleUse {
            id: id.or(own_id).map(text::title),
            level: self.overridden(result, id.or(own_id), slot)?.or(default),
            descriptor,
            taxonomies: self.taxonomies.clone(),
        })
    }

    /// A `reportingDescriptorReference`: the id it gives and where the rule is.
    fn resolve(
        &self,
        reference: &At<'_, 'v>,
        id: Option<&'v str>,
        index: Option<usize>,
    ) -> Result<(Option<&'v str>, Option<Slot>), IntakeError> {
        let id = match filled(reference.text("id")?) {
            // The longer id of the two is the more exact one.
            Some(inner) if id.is_none_or(|outer| inner.len() > outer.len()) => Some(inner),
            _ => id,
        };
        let index = reference.index("index")?.or(index);
        let guid = reference.text("guid")?;
        let component = match reference.object("toolComponent")? {
            Some(component) => self.component(&component)?,
            None => Some(0),
        };
        let slot = match component {
            Some(component) => self.slot(component, id, index, guid),
            None => self.slot(usize::MAX, id, None, guid),
        };
        Ok((id, slot))
    }

    /// Which component a `toolComponentReference` means, `None` for one that is not there.
    fn component(&self, reference: &At) -> Result<Option<usize>, IntakeError> {
        if let Some(index) = reference.index("index")? {
            return Ok(index.checked_add(1).filter(|i| *i < self.components.len()));
        }
        for key in ["guid", "name"] {
            if let Some(wanted) = reference.text(key)? {
                let same = |c: &Component| c.value.get(key).and_then(Value::as_str) == Some(wanted);
                return Ok(self.components.iter().position(same));
            }
        }
        Ok(Some(0))
    }

    fn slot(
        &self,
        component: usize,
        id: Option<&str>,
        index: Option<usize>,
        guid: Option<&str>,
    ) -> Option<Slot> {
        let by_index = index.and_then(|index| {
            self.components.get(component)?.rules.get(index).map(|_| (component, index))
        });
        let indexed_id =
            by_index.and_then(|(c, i)| self.components.get(c)?.rules.get(i)?.get("id")?.as_str());
        match (id, indexed_id) {
            (Some(id), Some(own)) if is_part_of(id, own) => return by_index,
            (None, Some(_)) => return by_index,
            _ => {}
        }
        guid.and_then(|guid| self.by_guid.get(guid).copied())
            .or_else(|| id.and_then(|id| self.by_hierarchical_id(component, id)))
            .or(by_index)
    }

    /// The rule `a/b/c`, else `a/b`, else `a`; of the named component if it has one.
    fn by_hierarchical_id(&self, component: usize, id: &str) -> Option<Slot> {
        let mut id = id;
        loop {
            if let Some(&slot) = self.by_id.get(id) {
                let here = self.components.get(component).and_then(|c| {
                    let own = |rule: &&'v Value| rule.get("id").and_then(Value::as_str) == Some(id);
                    // Only where the id is in two components does the search matter.
                    if slot.0 == component { None } else { c.rules.iter().position(own) }
                });
                return Some(here.map_or(slot, |rule| (component, rule)));
            }
            id = &id[..id.rfind('/')?];
        }
    }

    /// The invocation's level for the rule. A result that names no invocation belongs to the only
    /// one there is.
    fn overridden(
        &self,
        result: &At,
        id: Option<&str>,
        slot: Option<Slot>,
    ) -> Result<Option<&'v str>, IntakeError> {
        let named = match result.object("provenance")? {
            Some(provenance) => provenance.index("invocationIndex")?,
            None => None,
        };
        let index = named.or((self.overrides.len() == 1).then_some(0));
        let Some(list) = index.and_then(|index| self.overrides.get(index)) else { return Ok(None) };
        let hit = list.iter().find(|entry| match (entry.slot, slot) {
            (Some(a), Some(b)) => a == b,
            _ => entry.id.is_some() && entry.id == id,
        });
        Ok(hit.map(|entry| entry.level))
    }

    /// The driver's messages that any rule may use.
    pub fn global_messages(&self) -> Option<&'v Value> {
        self.components.first()?.value.get("globalMessageStrings")
    }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// `own` or one of its sub-rules.
fn is_part_of(id: &str, own: &str) -> bool {
    id.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl<'v> RuleUse<'v> {
    fn descriptor_text(&self, key: &str) -> Option<&'v str> {
        filled(self.descriptor?.get(key)?.get("text")?.as_str())
    }

    /// What the rule is about.
    pub fn description(&self) -> Option<&'v str> {
        self.descriptor_text("shortDescription").or_else(|| self.descriptor_text("fullDescription"))
    }

    /// True when what such a rule quotes may be a secret.
    pub fn is_about_secrets(&self) -> bool {
        let text = |key: &str| self.descriptor.and_then(|d| d.get(key)?.as_str());
        let tags = self.descriptor.and_then(|d| d.get("properties")?.get("tags")?.as_array());
        let tags = tags.into_iter().flatten().filter_map(Value::as_str);
        self.id.as_deref().into_iter().chain(text("name")).chain(tags).any(text::is_secret_rule)
    }

    /// The rule's security severity (a CVSS score, as code scanning reads it), else the level's.
    pub fn severity(&self, level: Level) -> Severity {
        let score = self.descriptor.and_then(|d| {
            let score = d.get("properties")?.get("security-severity")?;
            score.as_f64().or_else(|| score.as_str()?.trim().parse().ok())
        });
        match score {
            Some(score) if score >= 9.0 => Severity::Critical,
            Some(score) if score >= 7.0 => Severity::High,
            Some(score) if score >= 4.0 => Severity::Medium,
            Some(score) if score > 0.0 => Severity::Low,
            _ => severity_of(level),
        }
    }

    /// What helps to understand the finding: the rule's description, its page, its taxa.
    pub fn evidence(&self, result: &At) -> Result<Vec<String>, IntakeError> {
        let mut lines: Vec<String> = Vec::new();
        let full = self.descriptor_text("fullDescription").or_else(|| self.description());
        lines.extend(full.map(text::snippet));
        lines.extend(self.descriptor.and_then(|d| d.get("helpUri")?.as_str()).map(text::title));
        for taxon in result.objects("taxa")? {
            lines.extend(self.taxon(&taxon)?);
        }
        lines.truncate(20);
        Ok(lines)
    }

    /// `CWE-79` by id, or by index into the run's taxonomies.
    fn taxon(&self, taxon: &At) -> Result<Option<String>, IntakeError> {
        let taxonomy = match taxon.object("toolComponent")? {
            Some(component) => (component.text("name")?, component.index("index")?),
            None => (None, None),
        };
        let by_index = || -> Result<Option<&str>, IntakeError> {
            let Some(index) = taxon.index("index")? else { return Ok(None) };
            let list = taxonomy.1.and_then(|t| self.taxonomies.get(t)?.get("taxa")?.as_array());
            Ok(list.and_then(|taxa| taxa.get(index)?.get("id")?.as_str()))
        };
        let id = match filled(taxon.text("id")?) {
            Some(id) => Some(id),
            None => by_index()?,
        };
        Ok(id.map(|id| text::title(format!("{} {id}", taxonomy.0.unwrap_or_default()).trim())))
    }
}
