//! The names that the items of a module use.

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree};

/// The segments of a path: `crate`, `memory`, `Limiter`.
pub(crate) type Name = Vec<String>;

/// What each imported name stands for.
pub(crate) fn uses_in(items: &[Item]) -> Vec<(String, Name)> {
    let mut uses = Vec::new();
    for item in items {
        if let Item::Use(ItemUse { tree, .. }) = item {
            expand(tree, &[], &mut uses);
        }
    }
    uses
}

/// All names that the items use, but for those in modules among them.
pub(crate) fn names_in(items: &[Item]) -> Vec<Name> {
    let mut names = Names::default();
    items.iter().for_each(|item| names.visit_item(item));
    names.0
}

#[derive(Default)]
struct Names(Vec<Name>);

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, _module: &'ast ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut uses = Vec::new();
        expand(&item.tree, &[], &mut uses);
        self.0.extend(uses.into_iter().map(|(_, name)| name));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let name: Name = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if matches!(name[0].as_str(), "crate" | "self" | "super") && name.len() > 1 {
            self.0.push(name);
        }
        visit::visit_path(self, path);
    }
}

fn expand(tree: &UseTree, before: &[String], uses: &mut Vec<(String, Name)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => expand(&path.tree, &with(&path.ident), uses),
        UseTree::Group(group) => group.items.iter().for_each(|item| expand(item, before, uses)),
        UseTree::Name(name) if name.ident == "self" => {
            uses.push((before.last().cloned().unwrap_or_default(), before.to_vec()));
        }
        UseTree::Name(name) => uses.push((name.ident.to_string(), with(&name.ident))),
        UseTree::Rename(rename) => uses.push((rename.rename.to_string(), with(&rename.ident))),
        UseTree::Glob(_) => uses.push(("*".to_owned(), before.to_vec())),
    }
}
