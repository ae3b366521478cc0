//! S05xx: packages, manifests of components and releases, signatures.

super::codes! {
    RECIPE_INVALID = "S0560", "recipe-invalid", "a recipe or a tool that it needs cannot be used", Failed;
    STAGE_UNCLAIMED = "S0561", "stage-unclaimed", "files to be packed are claimed by no recipe line", Failed;
    STAGE_MISSING = "S0562", "stage-missing", "a recipe line finds no file", Failed;
    ARTEFACTS_DISAGREE = "S0563", "artefacts-disagree", "built files do not fit together", Failed;
    LICENCE_MISSING = "S0564", "licence-missing", "the licence text of a part is not there", Failed;
    RELEASE_INCONSISTENT = "S0565", "release-inconsistent", "a release folder does not fit together", Failed;
    KEY_UNUSABLE = "S0566", "key-unusable", "a key cannot be made, read or used", Failed;
    SIGNATURE_INVALID = "S0567", "signature-invalid", "a signature does not fit its file", Failed;
    TRUST_REFUSED = "S0568", "trust-refused", "a signed document is not trusted", Failed;
}
