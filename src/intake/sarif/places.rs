//! Where a result points to: artifact locations, their bases and nesting, regions.

use std::collections::HashMap;

use super::super::absolute::Absolute;
use super::super::draft::Spot;
use super::super::json::At;
use super::super::uri::{Base, Located, Resolver, Spelling, base_folder};
use super::super::{IntakeContext, IntakeError, PathKind, text};

/// Longest chain of bases or of nested artifacts that is followed.
const MAX_CHAIN: usize = 32;

/// The artifacts and bases of a run.
pub(super) struct Places<'r, 'v> {
    artifacts: Vec<Artifact<'v>>,
    bases: HashMap<String, Folder>,
    resolver: Resolver<'r>,
    ctx: &'r IntakeContext<'r>,
    logical: Vec<Option<&'v str>>,
    /// The artifacts are in other files.
    elsewhere: bool,
}

/// An entry of `run.artifacts`.
struct Artifact<'v> {
    location: Reference<'v>,
    parent: Option<usize>,
}

/// An `artifactLocation`.
#[derive(Clone, Copy, Default)]
struct Reference<'v> {
    uri: Option<&'v str>,
    base: Option<&'v str>,
    index: Option<usize>,
}

/// A base; `loose` is its parent where the producer left out the slash that RFC 3986 wants.
struct Folder {
    base: Base,
    loose: Option<Base>,
}

impl<'v> Reference<'v> {
    fn read(at: &At<'_, 'v>) -> Result<Self, IntakeError> {
        Ok(Self {
            uri: at.text("uri")?.filter(|uri| !uri.is_empty()),
            base: at.text("uriBaseId")?.filter(|base| !base.is_empty()),
            index: at.index("index")?,
        })
    }
}

impl<'r, 'v> Places<'r, 'v> {
    pub fn read(run: &At<'_, 'v>, ctx: &'r IntakeContext<'r>) -> Result<Self, IntakeError> {
        let mut artifacts = Vec::new();
        for artifact in run.objects("artifacts")? {
            let location = match artifact.object("location")? {
                Some(location) => Reference::read(&location)?,
                None => Reference::default(),
            };
            artifacts.push(Artifact { location, parent: artifact.index("parentIndex")? });
        }
        let mut declared = HashMap::new();
        if let Some(bases) = run.object("originalUriBaseIds")? {
            for (id, _) in bases.value.as_object().into_iter().flatten() {
                if let Some(base) = bases.object(id)? {
                    declared.insert(id.clone(), Reference::read(&base)?);
                }
            }
        }
        let bases: HashMap<String, Folder> =
            declared.keys().map(|id| (id.clone(), folder(id, &declared))).collect();
        let mut roots: Vec<(&String, &Folder)> =
            bases.iter().filter(|(id, _)| is_root_name(id)).collect();
        roots.sort_by_key(|(id, _)| *id);
        let mut roots: Vec<Absolute> = roots
            .into_iter()
            .filter_map(|(_, folder)| match &folder.base {
                Base::Absolute(root) => Some(root.clone()),
                Base::Checkout | Base::Relative(_) => None,
            })
            .collect();
        for control in run.objects("versionControlProvenance")? {
            if let Some(mapped) = control.object("mappedTo")?
                && let Some(root) = mapped.text("uri")?.and_then(Absolute::of_root)
            {
                roots.push(root);
            }
        }
        let mut logical = Vec::new();
        for location in run.objects("logicalLocations")? {
            logical.push(location.text("fullyQualifiedName")?.or(location.text("name")?));
        }
        let resolver = Resolver::new(ctx, Spelling::Uri, roots);
        let elsewhere = artifacts.is_empty() && super::is_external(run, "artifacts")?;
        Ok(Self { artifacts, bases, resolver, ctx, logical, elsewhere })
    }

    /// The places of a result, the primary one first. Purely logical ones have no file and are
    /// left out.
    pub fn of(&self, result: &At<'_, 'v>) -> Result<Vec<Spot>, IntakeError> {
        let mut spots = Vec::new();
        for location in result.objects("locations")? {
            let Some(physical) = location.object("physicalLocation")? else { continue };
            let Some(artifact) = physical.object("artifactLocation")? else { continue };
            let reference = Reference::read(&artifact)?;
            if self.elsewhere && reference.uri.is_none() && reference.index.is_some() {
                return Err(super::external(&artifact, "artifacts"));
            }
            let mut spot = self.spot(reference);
            if let (Some(spot), Some(region)) = (&mut spot, physical.object("region")?) {
                spot.line = region.line("startLine")?;
                spot.end_line = region.line("endLine")?;
                if let Some(snippet) = region.object("snippet")? {
                    spot.snippet =
                        snippet.text("text")?.map(text::snippet).filter(|s| !s.is_empty());
                }
            }
            if let Some(spot) = &mut spot {
                spot.symbol = self.symbol(&location)?;
            }
            spots.extend(spot);
        }
        if spots.is_empty()
            && let Some(target) = result.object("analysisTarget")?
        {
            spots.extend(self.spot(Reference::read(&target)?));
        }
        Ok(spots)
    }

    fn symbol(&self, location: &At<'_, 'v>) -> Result<Option<String>, IntakeError> {
        let logical = location.objects("logicalLocations")?;
        let Some(first) = logical.first() else { return Ok(None) };
        let named = first.text("fullyQualifiedName")?.or(first.text("name")?);
        let by_index = first.index("index")?.and_then(|i| self.logical.get(i).copied().flatten());
        Ok(named.or(by_index).map(text::title))
    }

    fn spot(&self, reference: Reference<'v>) -> Option<Spot> {
        let at = self.locate(reference)?;
        Some(Spot { at, line: None, end_line: None, snippet: None, symbol: None })
    }

    /// `None` when the reference names nothing at all.
    fn locate(&self, reference: Reference<'v>) -> Option<Located> {
        let artifact = reference.index.and_then(|index| self.artifacts.get(index));
        let mut reference = reference;
        if let Some(artifact) = artifact {
            reference.uri = reference.uri.or(artifact.location.uri);
            if reference.base.is_none() && reference.uri == artifact.location.uri {
                reference.base = artifact.location.base;
            }
            // A file inside a container: what can be edited is the outermost container.
            let mut outer = artifact;
            for _ in 0..MAX_CHAIN {
                match outer.parent {
                    None => break,
                    Some(parent) => outer = self.artifacts.get(parent)?,
                }
            }
            if artifact.parent.is_some() {
                if outer.parent.is_some() {
                    return Some(Located::Outside);
                }
                reference = outer.location;
            }
        }
        let uri = reference.uri?;
        let Some(folder) = reference.base.and_then(|id| self.bases.get(id)) else {
            return Some(self.resolver.locate(uri, &Base::Checkout));
        };
        let strict = self.resolver.locate(uri, &folder.base);
        if let Some(loose) = &folder.loose
            && !self.exists(&strict)
        {
            let other = self.resolver.locate(uri, loose);
            if self.exists(&other) {
                return Some(other);
            }
        }
        Some(strict)
    }

    fn exists(&self, at: &Located) -> bool {
        match at {
            Located::Inside(path) => (self.ctx.lookup)(path.as_str()) != PathKind::Missing,
            Located::Guess(_) | Located::Outside => false,
        }
    }
}

/// Names that producers give to the source root.
fn is_root_name(id: &str) -> bool {
    let id = id.to_ascii_uppercase();
    ["ROOT", "WORKSPACE", "CHECKOUT", "REPO"].iter().any(|word| id.contains(word))
}

/// Follows a base through the bases it stands on. What cannot be met is the checkout itself, so
/// that the relative path stands alone.
fn folder(id: &str, declared: &HashMap<String, Reference>) -> Folder {
    let mut tail = String::new();
    let mut next = Some(id);
    let mut slash = true;
    for _ in 0..MAX_CHAIN {
        let Some(reference) = next.and_then(|id| declared.get(id)) else {
            let base = if tail.is_empty() { Base::Checkout } else { Base::Relative(tail) };
            return Folder { base, loose: None };
        };
        let Some(uri) = reference.uri else {
            next = reference.base;
            if next.is_none() {
                let base = if tail.is_empty() { Base::Checkout } else { Base::Relative(tail) };
                return Folder { base, loose: None };
            }
            continue;
        };
        if tail.is_empty() {
            slash = uri.ends_with(['/', '\\']);
        }
        match base_folder(uri) {
            None => break,
            Some(Base::Absolute(root)) => {
                let Some(base) = root.join(&tail) else { break };
                if base.is_file_system_root() {
                    // A scanner that calls `/` its root means the folder it was given.
                    return Folder { base: Base::Checkout, loose: None };
                }
                let loose = if slash { None } else { base.parent().map(Base::Absolute) };
                return Folder { base: Base::Absolute(base), loose };
            }
            Some(Base::Relative(folder)) => {
                tail = format!("{}/{tail}", folder.trim_end_matches('/'));
                next = reference.base;
            }
            Some(Base::Checkout) => next = reference.base,
        }
    }
    Folder { base: Base::Checkout, loose: None }
}
