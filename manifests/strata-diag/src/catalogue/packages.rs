//! S05xx: packages, manifests of components and releases, signatures.

super::codes! {
    ARCHIVE_DAMAGED = "S0501", "archive-damaged", "an archive cannot be read to its end", Failed;
    NOT_CANONICAL = "S0502", "not-canonical", "an archive is not the canonical one of what it holds", Failed;
    BAD_ENTRY_NAME = "S0503", "bad-entry-name", "a name that must not be in a package", Failed;
    BAD_ENTRY_KIND = "S0504", "bad-entry-kind", "an entry that is neither file nor folder", Failed;
    LINK_OUTSIDE = "S0505", "link-outside", "a link that leads out of the package", Failed;
    LINK_DANGLING = "S0506", "link-dangling", "a link to something that is not in the package", Failed;
    LINK_LOOP = "S0507", "link-loop", "links that lead in a circle", Failed;
    NAME_TWINS = "S0508", "name-twins", "names that are one and the same on some machine", Failed;
    PACKAGE_TOO_LARGE = "S0509", "package-too-large", "a package that holds more than is read", Failed;
    MANIFEST_MISSING = "S0510", "manifest-missing", "there is no manifest to check against", Failed;
    MANIFEST_INVALID = "S0511", "manifest-invalid", "a manifest contradicts itself or cannot be read", Failed;
    FILE_UNLISTED = "S0512", "file-unlisted", "a file that no manifest lists", Failed;
    FILE_MISSING = "S0513", "file-missing", "a listed file is not there", Failed;
    FILE_DIFFERS = "S0514", "file-differs", "a file is not the listed one", Failed;
    MODE_DIFFERS = "S0515", "mode-differs", "a file's mode is not the listed one", Failed;
    VERSION_DIFFERS = "S0516", "version-differs", "two places name different versions", Failed;
    RECORD_MISSING = "S0517", "record-missing", "a program or plugin without a build record", Failed;
    LIBRARY_MISSING = "S0518", "library-missing", "a needed library is neither in the package nor declared as the host's", Failed;
    BAD_RUNPATH = "S0519", "bad-runpath", "a library search path that leads out of the package", Failed;
    LIBC_FLOOR = "S0520", "libc-floor", "the C or C++ library that is needed is not the promised one", Failed;
    ELF_UNSAFE = "S0521", "elf-unsafe", "an ELF file with a property that ours never have", Failed;
    PLUGIN_EXPORTS = "S0522", "plugin-exports", "a plugin exports something else than its one entry", Failed;
    GPU_TARGETS = "S0523", "gpu-targets", "the GPU code is not for the declared targets", Failed;
    KERNEL_FILES_MISSING = "S0524", "kernel-files-missing", "a math library without its files for a declared GPU", Failed;
    DESCRIPTOR_WRONG = "S0525", "descriptor-wrong", "a plugin's descriptor does not fit", Failed;
    SBOM_DIFFERS = "S0526", "sbom-differs", "a bill of material does not fit the manifest", Failed;
    BUILD_PATH = "S0527", "build-path", "a path of the machine where it was built", Failed;
    ELF_UNREADABLE = "S0528", "elf-unreadable", "a program or library whose headers cannot be read", Failed;
    NOT_SIGNED = "S0529", "signature-not-checked", "nothing says who made it", Failed;
    RELEASE_DIFFERS = "S0530", "release-differs", "a release folder is not what its index says", Failed;
    NOTHING_CHECKED = "S0531", "nothing-checked", "nothing could be checked", Failed;
    SUM_DIFFERS = "S0532", "sum-differs", "a file is not the one in the list of sums", Failed;
    SUM_UNREAD = "S0533", "sum-unread", "a line of the list gave nothing to check", Failed;
    RUN_DIFFERS = "S0534", "run-differs", "a program says another version than its record", Failed;
    UNPACK_REFUSED = "S0535", "unpack-refused", "an archive is not unpacked", Failed;
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
