//! The modules of a target: their files, and what their names lead to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::Imports;
use crate::names::{Name, names_in, uses_in};

/// The names of a module and of those around it, from the root's.
type ModulePath = Vec<String>;

/// The modules of a target.
#[derive(Debug, Default)]
pub struct Modules(BTreeMap<ModulePath, Module>);

#[derive(Debug)]
struct Module {
    file: PathBuf,
    /// What the module names, imports included.
    names: Vec<Name>,
    /// What a name stands for that an import brought in.
    imported: BTreeMap<String, Name>,
}

impl Modules {
    /// Reads a target from its root file on.
    ///
    /// # Panics
    /// If a file cannot be read or is not Rust.
    pub fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        modules.read_file(&Vec::new(), root, folder_of(root));
        modules
    }

    /// Which files import which, but for modules and those around them.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.0 {
            for name in &module.names {
                let Some(other) = self.find(path, name, 0) else { continue };
                let file = &self.0[&other].file;
                if *file != module.file && !path.starts_with(&other) && !other.starts_with(path) {
                    imports.entry(module.file.clone()).or_default().insert(file.clone());
                }
            }
        }
        imports
    }

    /// `children` is the folder of the module's own modules.
    fn read_file(&mut self, path: &ModulePath, file: &Path, children: &Path) {
        let text = fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let parsed = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{} is not Rust: {error}", file.display()));
        self.read_items(path, file, children, &parsed.items);
    }

    fn read_items(&mut self, path: &ModulePath, file: &Path, children: &Path, items: &[Item]) {
        let imported = uses_in(items).into_iter().collect();
        let module = Module { file: file.to_owned(), names: names_in(items), imported };
        self.0.insert(path.clone(), module);
        for item in items {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let folder = children.join(&name);
            let path = &[path.clone(), vec![name]].concat();
            match &child.content {
                Some((_, items)) => self.read_items(path, file, &folder, items),
                None => match named_file(child, file) {
                    // The modules of such a file are beside it.
                    Some(file) => self.read_file(path, &file, folder_of(&file)),
                    None => self.read_file(path, &folder.with_extension("rs"), &folder),
                },
            }
        }
    }

    /// The module that defines what a name leads to.
    fn find(&self, from: &ModulePath, name: &Name, hops: usize) -> Option<ModulePath> {
        // Two modules may import each other's globs.
        if hops > 16 {
            return None;
        }
        let mut at = from.clone();
        for (index, segment) in name.iter().enumerate() {
            let child = [at.clone(), vec![segment.clone()]].concat();
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.0.contains_key(&child) => at = child,
                _ if index == 0 => return None,
                _ => {
                    let Some(target) = self.0[&at].imported.get(segment) else { break };
                    let whole = [target.clone(), name[index + 1..].to_vec()].concat();
                    return self.find(&at, &whole, hops + 1);
                }
            }
        }
        Some(at)
    }
}

/// The file of `#[path = …] mod child;` in `file`.
fn named_file(child: &ItemMod, file: &Path) -> Option<PathBuf> {
    for attribute in &child.attrs {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("path")
            && let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &pair.value
        {
            return Some(folder_of(file).join(path.value()));
        }
    }
    None
}

fn folder_of(file: &Path) -> &Path {
    file.parent().expect("a file is in a folder")
}
