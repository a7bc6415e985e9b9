//! Parameter lists of functions and lambdas, and type parameters.

use super::{Parsed, Parser};
use crate::python::Dialect;
use crate::python::ast::{Parameter, Parameters, TypeParam, TypeParamKind};

impl Parser<'_> {
    /// Parameters up to (not including) `close`; annotations and type comments only in a `def`.
    pub(super) fn parameters(&mut self, close: &str) -> Parsed<Parameters> {
        let def = close == ")";
        let mut all = Parameters::default();
        let mut defaults = false;
        let mut star = false;
        let mut slash = false;
        while !self.at(close) {
            if self.eat("**") {
                all.kwarg = Some(self.parameter(def, false)?);
                if self.at("=") {
                    return self.error("`**` parameters have no default");
                }
                self.separator(close)?;
                if !self.at(close) {
                    return self.error("nothing may follow the `**` parameter");
                }
            } else if self.eat("*") {
                if star {
                    return self.error("`*` appears twice");
                }
                star = true;
                if self.eat(",") {
                    if !self.at_name() {
                        return self.error("a bare `*` needs a named parameter after it");
                    }
                    continue;
                }
                all.vararg = Some(self.parameter(def, true)?);
                if self.at("=") {
                    return self.error("the `*` parameter has no default");
                }
                self.separator(close)?;
            } else if self.at("/") {
                if slash || star || all.positional.is_empty() {
                    return self.error("`/` must follow positional parameters, once");
                }
                self.pos += 1;
                slash = true;
                all.positional_only = std::mem::take(&mut all.positional);
                if !self.eat(",") && !self.at(close) {
                    return self.error("expected `,` after `/`");
                }
            } else {
                let mut parameter = self.parameter(def, false)?;
                if self.eat("=") {
                    parameter.default = Some(self.expression()?);
                }
                if star {
                    all.keyword_only.push(parameter);
                } else {
                    if defaults && parameter.default.is_none() {
                        return self.error("a parameter without default follows one with");
                    }
                    defaults |= parameter.default.is_some();
                    all.positional.push(parameter);
                }
                self.separator(close)?;
            }
        }
        Ok(all)
    }

    fn parameter(&mut self, def: bool, star: bool) -> Parsed<Parameter> {
        let name = self.name()?;
        let mut annotation = None;
        if def && self.eat(":") {
            annotation = Some(if star { self.star_expression()? } else { self.expression()? });
        }
        Ok(Parameter { name, annotation, default: None })
    }

    /// A comma, or the end of the list; in a `def` a type comment may follow.
    fn separator(&mut self, close: &str) -> Parsed<()> {
        let comma = self.eat(",");
        if close == ")" {
            self.type_comment();
        }
        if comma || self.at(close) {
            return Ok(());
        }
        self.error("expected `,` or the end of the parameters")
    }

    /// `[T, *Ts, **P]`, from 3.12 on.
    pub(super) fn type_params(&mut self) -> Parsed<Vec<TypeParam>> {
        let mut all = Vec::new();
        if self.options.dialect == Dialect::V311 || !self.eat("[") {
            return Ok(all);
        }
        loop {
            let kind = if self.eat("**") {
                TypeParamKind::Spec
            } else if self.eat("*") {
                TypeParamKind::Tuple
            } else {
                TypeParamKind::Var
            };
            let name = self.name()?;
            let mut bound = None;
            if kind == TypeParamKind::Var && self.eat(":") {
                bound = Some(self.expression()?);
            }
            let mut default = None;
            if self.options.dialect == Dialect::V313 && self.eat("=") {
                let starred = kind == TypeParamKind::Tuple;
                default = Some(if starred { self.star_expression()? } else { self.expression()? });
            }
            all.push(TypeParam { name, kind, bound, default });
            if !self.eat(",") || self.at("]") {
                break;
            }
        }
        self.expect("]", "expected `,` or `]` in the type parameters")?;
        Ok(all)
    }
}
