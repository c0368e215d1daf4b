/* The bugs that the filesystem can have, one at a time: identifier, name, class, what goes wrong.

   Files of this form are called X-macros: the daemon makes an enum and a table of it, and the runner reads the table. */

/* directories with many names */
BUG(LISTING_SKIPS, "listing-skips", "directories", "the first name of each further buffer is left out")
BUG(LISTING_REPEATS, "listing-repeats", "directories", "the last name of a buffer comes again in the next one")
BUG(LISTING_COUNTS, "listing-counts", "directories", "a position is a count, so names move up when others are removed")
BUG(LISTING_NO_SEEK, "listing-no-seek", "directories", "a listing goes on wherever it is moved to")
BUG(LISTING_ENDS, "listing-ends", "directories", "a listing ends after 500 names")
BUG(LISTING_TYPES, "listing-types", "directories", "directories are listed as files")
BUG(NAME_LONG, "name-long", "directories", "names above 250 bytes are refused")
BUG(NAME_UTF8, "name-utf8", "directories", "a name that is not UTF-8 is refused")
BUG(CASE_FOLDED, "case-folded", "directories", "a directory does not tell names apart that differ in case")
BUG(CASE_LOWER, "case-lower", "directories", "new names are stored in lower case")
BUG(NAME_COMPOSED, "name-composed", "directories", "a letter and its accent are stored as one character")
BUG(RMDIR_FULL, "rmdir-full", "directories", "a directory with a name in it is removed")

/* offsets and sizes beyond 2 and 4 GiB */
BUG(WRITE_32, "write-32", "offsets", "writes lose the upper half of their offset")
BUG(READ_31, "read-31", "offsets", "reads beyond 2 GiB return zeros")
BUG(TRUNCATE_32, "truncate-32", "offsets", "truncating loses the upper half of the size")
BUG(SIZE_32, "size-32", "offsets", "the size is reported modulo 4 GiB")
BUG(READ_32, "read-32", "offsets", "reads beyond 4 GiB return what is 4 GiB before")
BUG(WRITE_33, "write-33", "offsets", "writes wrap at 8 GiB")
BUG(WRITE_41, "write-41", "offsets", "writes wrap at 2 TiB")
BUG(COPY_32, "copy-32", "offsets", "the target of copy_file_range wraps at 4 GiB")
BUG(ALLOCATE_32, "allocate-32", "offsets", "fallocate wraps at 4 GiB")
BUG(DATA_32, "data-32", "offsets", "SEEK_DATA and SEEK_HOLE wrap at 4 GiB")

/* sparse files */
BUG(DATA_LATE, "data-late", "sparse", "SEEK_DATA returns the block after the right one")
BUG(DATA_NONE, "data-none", "sparse", "SEEK_DATA finds nothing behind a hole")
BUG(PUNCH_ROUNDS, "punch-rounds", "sparse", "a hole grows to whole blocks")
BUG(PUNCH_NOTHING, "punch-nothing", "sparse", "punching changes nothing")
BUG(PUNCH_EXTENDS, "punch-extends", "sparse", "a hole beyond the end extends the file")
BUG(ZERO_NOTHING, "zero-nothing", "sparse", "zeroing a range changes nothing")
BUG(ALLOCATE_NOTHING, "allocate-nothing", "sparse", "allocating beyond the end does not extend the file")
BUG(ALLOCATE_KEEPS_NOT, "allocate-keeps-not", "sparse", "allocating with KEEP_SIZE extends the file")
BUG(TRUNCATE_STALE, "truncate-stale", "sparse", "a file that grows again has its old bytes back")
BUG(GAP_GARBAGE, "gap-garbage", "sparse", "a write beyond the end leaves garbage in the gap")

/* contents */
BUG(WRITE_64K, "write-64k", "contents", "a write loses all after 65536 bytes")
BUG(WRITE_EDGE, "write-edge", "contents", "a write from the last byte of a block loses that byte")
BUG(WRITE_ZEROS, "write-zeros", "contents", "a write of zeros is left out within the file")
BUG(TRUNCATE_OPEN, "truncate-open", "contents", "truncating to nothing leaves one byte")

/* copies */
BUG(COPY_HALF, "copy-half", "copies", "copy_file_range copies half of what it reports")
BUG(COPY_OFFSET, "copy-offset", "copies", "copy_file_range writes at the offset that it reads from")

/* appending and files without a name */
BUG(APPEND_OPENED, "append-opened", "append", "appends go where the file ended when it was opened")
BUG(APPEND_PAGE, "append-page", "append", "an append loses all after 4096 bytes")
BUG(TMPFILE_SHOWN, "tmpfile-shown", "append", "a file of O_TMPFILE has a name")
BUG(TMPFILE_EMPTY, "tmpfile-empty", "append", "a file of O_TMPFILE that gets a name is empty")

/* renames, links, unlinking */
BUG(EXCHANGE_RENAMES, "exchange-renames", "names", "exchanging two names renames one over the other")
BUG(RENAME_NONEMPTY, "rename-nonempty", "names", "a directory is renamed over one that is not empty")
BUG(RENAME_COPIES, "rename-copies", "names", "renaming a file with several names makes a copy")
BUG(RENAME_TRUNCATES, "rename-truncates", "names", "an open file that another is renamed over loses its contents")
BUG(UNLINK_TRUNCATES, "unlink-truncates", "names", "an open file that is unlinked loses its contents")
BUG(LINKS_ONE, "links-one", "names", "the number of links is always 1")
BUG(LINK_COPIES, "link-copies", "names", "a hard link is a copy")
BUG(LINK_NODES, "link-nodes", "names", "each name of a file has its own caches")
BUG(SYMLINK_CUT, "symlink-cut", "names", "the target of a symbolic link is cut after 59 bytes")

/* times, modes, owners */
BUG(MTIME_KEPT, "mtime-kept", "attributes", "writing does not change the time of modification")
BUG(MTIME_READ, "mtime-read", "attributes", "reading changes the time of modification")
BUG(MTIME_CHMOD, "mtime-chmod", "attributes", "chmod changes the time of modification")
BUG(MTIME_RENAME, "mtime-rename", "attributes", "renaming changes the time of modification of the file")
BUG(MTIME_DIRECTORY, "mtime-directory", "attributes", "a new name does not change the time of its directory")
BUG(ATIME_WRITE, "atime-write", "attributes", "writing changes the time of access")
BUG(UTIME_SECONDS, "utime-seconds", "attributes", "times lose their nanoseconds")
BUG(UTIME_SWAPPED, "utime-swapped", "attributes", "the times of access and modification are exchanged")
BUG(UTIME_32, "utime-32", "attributes", "times after 2038 come back before 1970")
BUG(UTIME_ONE, "utime-one", "attributes", "a time that is set alone is ignored")
BUG(UTIME_PRESENT, "utime-now", "attributes", "a time that is set to the present is ignored")
BUG(CHMOD_SPECIAL, "chmod-special", "attributes", "chmod loses set-uid, set-gid and sticky bits")
BUG(CHMOD_MEMORY, "chmod-memory", "attributes", "chmod is forgotten at the next mount")
BUG(WRITE_SUID, "write-suid", "attributes", "set-uid and set-gid survive a write by another user")
BUG(CHOWN_SUID, "chown-suid", "attributes", "set-uid and set-gid survive chown")
BUG(CHOWN_GROUP, "chown-group", "attributes", "chown does not change the group")
BUG(CREATE_MODE, "create-mode", "attributes", "a new file always has the mode 0644")
BUG(MKDIR_MODE, "mkdir-mode", "attributes", "a new directory is always open to its owner")
BUG(SETGID_DIRECTORY, "setgid-directory", "attributes", "a file in a set-gid directory has the group of the process")

/* extended attributes and ACLs */
BUG(XATTR_EMPTY, "xattr-empty", "xattrs", "an attribute without a value is removed")
BUG(XATTR_CREATES, "xattr-create", "xattrs", "XATTR_CREATE replaces")
BUG(XATTR_REPLACES, "xattr-replace", "xattrs", "XATTR_REPLACE creates")
BUG(XATTR_CUT, "xattr-cut", "xattrs", "values are cut after 255 bytes")
BUG(XATTR_LARGE, "xattr-large", "xattrs", "a value that is too large is dropped without an error")
BUG(XATTR_LONG, "xattr-long", "xattrs", "names are cut after 200 bytes")
BUG(XATTR_LIST, "xattr-list", "xattrs", "the list of attributes lacks the last one")
BUG(XATTR_TRUSTED, "xattr-trusted", "xattrs", "trusted attributes are dropped")
BUG(XATTR_REMOVE, "xattr-remove", "xattrs", "removing an attribute that is not there succeeds")
BUG(XATTR_RENAME, "xattr-rename", "xattrs", "a file that is renamed over another has no attributes left")
BUG(ACL_DROPPED, "acl-dropped", "xattrs", "ACLs are dropped")
BUG(ACL_DEFAULT, "acl-default", "xattrs", "default ACLs are dropped")

/* the figures of the filesystem */
BUG(STATFS_CONSTANT, "statfs-constant", "statfs", "the free space never changes")
BUG(STATFS_NAME, "statfs-name", "statfs", "names may be only 100 bytes long")

/* locks */
BUG(FLOCK_GRANTED, "flock-granted", "locks", "flock is always granted")
BUG(FLOCK_KEPT, "flock-kept", "locks", "flock is not released when the file is closed")
BUG(FLOCK_SHARED, "flock-shared", "locks", "a shared flock is exclusive")
BUG(POSIX_GRANTED, "posix-granted", "locks", "POSIX and OFD locks are always granted")
BUG(POSIX_WHOLE, "posix-whole", "locks", "POSIX and OFD locks of a range are for the whole file")

/* mappings */
BUG(MAP_LOST, "map-lost", "mappings", "what is written through a mapping is lost")
BUG(MAP_PAGE, "map-page", "mappings", "writing through a mapping extends the file to whole pages")

/* no space left */
BUG(FULL_WRITE, "full-write", "space", "a write that fails for space is reported as done")
BUG(FULL_SHORT, "full-short", "space", "a write that has space for a part is reported as a whole")
BUG(FULL_TRUNCATES, "full-truncates", "space", "a write that fails for space empties the file")
BUG(FULL_EIO, "full-eio", "space", "no space is reported as EIO")
BUG(FULL_ALLOCATE, "full-allocate", "space", "allocating without space succeeds")
BUG(FULL_MKDIR, "full-mkdir", "space", "mkdir without space leaves a file")

/* calls that sync */
BUG(FSYNC_NOTHING, "fsync-nothing", "syncs", "fsync does nothing")
BUG(FDATASYNC_NOTHING, "fdatasync-nothing", "syncs", "fdatasync does nothing")
BUG(FSYNCDIR_NOTHING, "fsyncdir-nothing", "syncs", "fsync of a directory does nothing")
BUG(OSYNC_NOTHING, "osync-nothing", "syncs", "O_SYNC and O_DSYNC do nothing")

/* two processes at once */
BUG(RENAME_BOTH, "rename-both", "processes", "a renamed file has one more link for a moment")
BUG(TRUNCATE_GAP, "truncate-gap", "processes", "a file that is truncated is empty for a moment")
BUG(CHMOD_GAP, "chmod-gap", "processes", "a mode that changes is 0 for a moment")
BUG(XATTR_GAP, "xattr-gap", "processes", "an attribute that is replaced is gone for a moment")
BUG(WRITE_BLOCK, "write-block", "processes", "a write reads its block, waits, and writes it back")
