#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* The directory, the open files by slot, and an answer as text. */
static char root[4096], text[8192];
static int slots[16] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
static int wrong;

#define PART 65536

static const char *at(const char *path)
{
	static char paths[2][8192];
	static int next;
	snprintf(paths[next ^= 1], sizeof paths[0], "%s/%s", root, *path ? path : ".");
	return paths[next];
}

static const char *number(long result)
{
	if (result < 0)
		snprintf(text, sizeof text, "%s", errno == EOPNOTSUPP ? "EOPNOTSUPP" : strerrorname_np(errno));
	else
		snprintf(text, sizeof text, "%ld", result);
	return text;
}

static const char *done(long result)
{
	return result < 0 ? number(result) : "done";
}

static uint32_t crc32(const char *data, size_t length)
{
	uint32_t crc = ~0u;
	while (length--) {
		crc ^= (unsigned char)*data++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
	}
	return ~crc;
}

static const char *bytes(const char *data, ssize_t length)
{
	if (length < 0)
		return number(length);
	snprintf(text, sizeof text, "%zd bytes, crc32 %08x", length, crc32(data, length));
	return text;
}

/* Bytes that differ for each fill below 251, and zeros for 251. */
static char *data(size_t length, int fill)
{
	char *result = calloc(1, length + 1);
	for (size_t index = 0; fill != 251 && index < length; index++)
		result[index] = (fill % 251 + index) % 251;
	return result;
}

static void expect(const char *call, const char *found, const char *expected)
{
	int differs = strcmp(found, expected) != 0;
	wrong += differs;
	printf("%s: %s%s%s\n", call, found, differs ? " instead of " : "", differs ? expected : "");
}

static void as_user(int user)
{
	if (user)
		setfsgid(user), setfsuid(user);
	else
		setfsuid(0), setfsgid(0);
}

static void let_go(void)
{
	for (int slot = 0; slot < 16; slot++)
		if (slots[slot] >= 0)
			close(slots[slot]), slots[slot] = -1;
}

static void remount(const char *command)
{
	let_go();
	if (command && system(command))
		exit(2);
	if (!command)
		puts("remount it, then Enter"), getchar();
}

/* Whether a word is one of several in a text. */
static int has(const char *words, const char *word)
{
	size_t length = strlen(word);
	for (const char *found = words; (found = strstr(found, word)); found++)
		if ((found == words || found[-1] == ' ') && (!found[length] || found[length] == ' '))
			return 1;
	return 0;
}

static const char *call_open(int slot, const char *path, const char *words, int mode)
{
	int flags = has(words, "RDWR") ? O_RDWR : has(words, "WRONLY") ? O_WRONLY : O_RDONLY;
	flags |= has(words, "CREAT") * O_CREAT | has(words, "EXCL") * O_EXCL | has(words, "TRUNC") * O_TRUNC;
	flags |= has(words, "APPEND") * O_APPEND | has(words, "NOFOLLOW") * O_NOFOLLOW;
	flags |= has(words, "DIRECTORY") * O_DIRECTORY | has(words, "TMPFILE") * O_TMPFILE;
	if (slots[slot] >= 0)
		close(slots[slot]);
	return done(slots[slot] = open(at(path), flags, mode));
}

static const char *call_close(int slot)
{
	int result = close(slots[slot]);
	slots[slot] = -1;
	return done(result);
}

static const char *call_pread(int slot, long offset, long length)
{
	char *buffer = data(length, 251);
	return bytes(buffer, pread(slots[slot], buffer, length, offset));
}

static const char *call_preadv(int slot, long offset, long length)
{
	char *buffer = data(2 * length, 251);
	struct iovec parts[] = {{buffer, length}, {buffer + length, length}};
	return bytes(buffer, preadv(slots[slot], parts, 2, offset));
}

static const char *call_read(int slot, long length)
{
	char *buffer = data(length, 251);
	return bytes(buffer, read(slots[slot], buffer, length));
}

static const char *call_pwrite(int slot, long offset, long length, int fill)
{
	return number(pwrite(slots[slot], data(length, fill), length, offset));
}

static const char *call_write(int slot, long length, int fill)
{
	return number(write(slots[slot], data(length, fill), length));
}

static const char *call_pwritev(int slot, const char *how, long offset, long length, int fill)
{
	int flags = has(how, "APPEND") * RWF_APPEND | has(how, "DSYNC") * RWF_DSYNC | has(how, "SYNC") * RWF_SYNC;
	struct iovec parts[] = {{data(length, fill), length}, {data(length, fill + 1), length}};
	return number(pwritev2(slots[slot], parts, 2, offset, flags));
}

/* The descriptor of a slot, or -1 for a directory, because filesystems choose the sizes of directories. */
static int fd_of_file(int slot)
{
	struct stat status = {0};
	if (fstat(slots[slot], &status) < 0)
		return -1;
	if (S_ISDIR(status.st_mode))
		return errno = EISDIR, -1;
	return slots[slot];
}

static const char *call_lseek(int slot, const char *whence, long offset)
{
	int fd = fd_of_file(slot);
	if (fd < 0)
		return number(-1);
	return number(lseek(fd, offset, has(whence, "SET") ? SEEK_SET : has(whence, "CUR") ? SEEK_CUR : SEEK_END));
}

static int zeros(int fd, long offset, long end)
{
	char *buffer = data(PART, 251);
	ssize_t count = pread(fd, buffer, end - offset < PART ? end - offset : PART, offset);
	while (count > 0)
		if (buffer[--count])
			return 0;
	return 1;
}

static const char *call_seek_data(int slot, long offset)
{
	struct stat status = {0};
	int fd = fd_of_file(slot);
	if (fd < 0 || fstat(fd, &status) < 0)
		return number(-1);
	off_t start = lseek(fd, offset, SEEK_DATA);
	if (start < 0 && (errno != ENXIO || offset >= status.st_size))
		return number(-1);
	start = start < 0 ? status.st_size : start;
	off_t end = lseek(fd, offset, SEEK_HOLE);
	if (end < 0)
		return number(-1);
	lseek(fd, 0, SEEK_SET);
	if (start < offset || start > status.st_size || end < offset || end > status.st_size)
		return "outside of the file";
	return zeros(fd, offset, start) && zeros(fd, start - PART > offset ? start - PART : offset, start)
		? "right" : "data in a hole";
}

static const char *call_truncate(const char *path, long size) { return done(truncate(at(path), size)); }

static const char *call_ftruncate(int slot, long size) { return done(ftruncate(slots[slot], size)); }

static const char *call_fallocate(int slot, const char *how, long offset, long length)
{
	int mode = has(how, "KEEP_SIZE") * 1 | has(how, "PUNCH_HOLE") * 3 | has(how, "ZERO_RANGE") * 16;
	return done(fallocate(slots[slot], mode, offset, length));
}

static const char *call_copy_file_range(int source, long offset, int slot, long to, long length)
{
	off_t from = offset, into = to;
	ssize_t count = 0;
	while (from - offset < length)
		if ((count = copy_file_range(slots[source], &from, slots[slot], &into, length - (from - offset), 0)) <= 0)
			break;
	return number(count < 0 ? -1 : into - to);
}

/* Whether two slots have one file, of which the kernel may read what it has just written. */
static int same(int slot, int source)
{
	struct stat one = {0}, other = {0};
	if (fstat(slots[slot], &one) < 0 || fstat(slots[source], &other) < 0)
		return 1;
	errno = EINVAL;
	return one.st_ino == other.st_ino;
}

static const char *call_sendfile(int source, long offset, int slot, long length)
{
	off_t from = offset;
	return number(same(slot, source) ? -1 : sendfile(slots[slot], slots[source], &from, length));
}

static const char *call_splice(int source, long offset, int slot, long to, long length)
{
	off_t from = offset, into = to;
	int ends[2];
	if (same(slot, source) || pipe(ends) < 0)
		return number(-1);
	ssize_t count = splice(slots[source], &from, ends[1], NULL, length < PART ? length : PART, 0);
	return number(count > 0 ? splice(ends[0], NULL, slots[slot], &into, count, 0) : count);
}

static char *mapped(int slot, long offset, long *length, int protection)
{
	struct stat status = {0};
	long begin = offset / 4096 * 4096;
	int fd = fd_of_file(slot);
	if (fd < 0 || fstat(fd, &status) < 0)
		return MAP_FAILED;
	if (offset + *length > status.st_size)
		*length = status.st_size - offset;
	if (*length <= 0)
		return NULL;
	char *mapping = mmap(NULL, offset - begin + *length, protection, MAP_SHARED, fd, begin);
	return mapping == MAP_FAILED ? mapping : mapping + (offset - begin);
}

static const char *call_mmap_write(int slot, long offset, long length, int fill)
{
	char *content = data(length, fill), *mapping = mapped(slot, offset, &length, PROT_READ | PROT_WRITE);
	if (!mapping || mapping == MAP_FAILED)
		return number(mapping ? -1 : 0);
	memcpy(mapping, content, length);
	char *page = mapping - offset % 4096;
	return number(msync(page, length + offset % 4096, MS_SYNC) < 0 ? -1 : length);
}

static const char *call_mmap_read(int slot, long offset, long length)
{
	char *mapping = mapped(slot, offset, &length, PROT_READ);
	return mapping == MAP_FAILED ? number(-1) : bytes(mapping, mapping ? length : 0);
}

static const char *call_rename(const char *old, const char *new) { return done(rename(at(old), at(new))); }

static const char *call_renameat2(const char *old, const char *new, const char *how)
{
	return done(renameat2(AT_FDCWD, at(old), AT_FDCWD, at(new), has(how, "EXCHANGE") ? 2 : 1));
}

static const char *call_link(const char *old, const char *new) { return done(link(at(old), at(new))); }

static const char *call_link_fd(int slot, const char *new)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", slots[slot]);
	return done(slots[slot] < 0 ? close(-1) : linkat(slots[slot], path, AT_FDCWD, at(new), AT_SYMLINK_FOLLOW));
}

static const char *call_symlink(const char *target, const char *path) { return done(symlink(target, at(path))); }

static const char *call_readlink(const char *path)
{
	ssize_t length = readlink(at(path), text, sizeof text - 1);
	if (length < 0)
		return number(-1);
	text[length] = 0;
	return text;
}

static const char *call_unlink(const char *path) { return done(unlink(at(path))); }

static const char *call_mkdir(const char *path, int mode) { return done(mkdir(at(path), mode)); }

static const char *call_rmdir(const char *path) { return done(rmdir(at(path))); }

static void numbered(char *name, const char *path, int index)
{
	snprintf(name, 4096, "%s/%04d-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", path, index);
}

static const char *call_make_names(const char *path, int count)
{
	char name[4096];
	for (int index = 0, fd; index < count; index++) {
		numbered(name, path, index);
		if ((fd = open(at(name), O_CREAT | O_EXCL | O_WRONLY, 0644)) < 0)
			return number(-1);
		close(fd);
	}
	return "done";
}

/* The type of an entry, which a filesystem need not say (readdir(3)). */
static int type_of(DIR *directory, struct dirent *entry)
{
	struct stat status;
	if (entry->d_type != DT_UNKNOWN || fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return entry->d_type;
	return IFTODT(status.st_mode);
}

/* Read names and types, such as "a DIR", at most so many. A listing may have no end. */
static int entries(DIR *directory, char **names, int most)
{
	struct dirent *entry;
	int count = 0, type;
	while (count < most && (entry = readdir(directory))) {
		type = type_of(directory, entry);
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strncmp(entry->d_name, ".fuse_hidden", 12)
			&& asprintf(&names[count], "%s %s", entry->d_name,
						type == DT_DIR ? "DIR" : type == DT_LNK ? "LNK" : "REG") > 0)
			count++;
	}
	return count;
}

static int compare(const void *one, const void *other) { return strcmp(*(char **)one, *(char **)other); }

static const char *listed(char **names, int count)
{
	char *all = calloc(1, 1), *more;
	qsort(names, count, sizeof *names, compare);
	for (int index = 0; index < count; index++, all = more)
		if (asprintf(&more, "%s%s/", all, names[index]) < 0)
			exit(2);
	snprintf(text, sizeof text, "%d names, crc32 %08x", count, crc32(all, strlen(all)));
	return text;
}

static const char *call_readdir(const char *path)
{
	static char *names[5000];
	DIR *directory = opendir(at(path));
	if (!directory)
		return number(-1);
	int count = entries(directory, names, 5000);
	closedir(directory);
	return listed(names, count);
}

static const char *call_readdir_twice(const char *path, int first)
{
	static char *names[10002], *again[5000];
	DIR *directory = opendir(at(path));
	if (!directory)
		return number(-1);
	int begin = entries(directory, names, first);
	long place = telldir(directory);
	int rest = entries(directory, names + begin, 5000);
	seekdir(directory, place);
	int count = entries(directory, again, 5000), equal = count == rest;
	closedir(directory);
	for (int index = 0; equal && index < count; index++)
		equal = !strcmp(names[begin + index], again[index]);
	/* This line stands behind the names, so it must not be sorted. */
	char *all = calloc(1, 1), *more;
	qsort(names, begin + rest, sizeof *names, compare);
	if (asprintf(&names[begin + rest], equal ? "as before" : "%d of %d again", count, rest) < 0)
		exit(2);
	for (int index = 0; index <= begin + rest; index++, all = more)
		if (asprintf(&more, "%s%s/", all, names[index]) < 0)
			exit(2);
	snprintf(text, sizeof text, "%d names, crc32 %08x", begin + rest + 1, crc32(all, strlen(all)));
	return text;
}

static const char *call_readdir_removing(const char *path, int first)
{
	static char *names[10000], *kept[10000];
	DIR *directory = opendir(at(path));
	char name[4096];
	int all, count = 0;
	if (!directory)
		return number(-1);
	int begin = entries(directory, names, first);
	for (int index = 1; index < 1000; index += 2) {
		numbered(name, path, index);
		unlink(at(name));
	}
	all = begin + entries(directory, names + begin, 5000);
	closedir(directory);
	for (int index = 0; index < all; index++)
		if (strspn(names[index], "0123456789") < 4 || atoi(names[index]) % 2 == 0)
			kept[count++] = names[index];
	return listed(kept, count);
}

static const char *call_chmod(const char *path, int mode) { return done(chmod(at(path), mode)); }

static const char *call_fchmod(int slot, int mode) { return done(fchmod(slots[slot], mode)); }

static const char *call_chown(const char *path, int uid, int gid) { return done(lchown(at(path), uid, gid)); }

static const char *call_umask(int mask) { return umask(mask), "done"; }

static const char *call_access(const char *path, const char *how)
{
	int mode = *how == 'R' ? R_OK : *how == 'W' ? W_OK : *how == 'X' ? X_OK : F_OK;
	return access(at(path), mode) < 0 ? "False" : "True";
}

static const char *call_utimens(const char *path, long atime, long mtime)
{
	struct timespec times[] = {{atime / 1000000000, atime % 1000000000}, {mtime / 1000000000, mtime % 1000000000}};
	struct stat status = {0};
	if (utimensat(AT_FDCWD, at(path), times, AT_SYMLINK_NOFOLLOW) < 0 || lstat(at(path), &status) < 0)
		return number(-1);
	snprintf(text, sizeof text, "%ld %ld", status.st_atim.tv_sec * 1000000000 + status.st_atim.tv_nsec,
			 status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
	return text;
}

static const char *call_utime_one(const char *path, const char *which, const char *how)
{
	struct timespec both[] = {{1000000000, 0}, {1000001000, 0}};
	struct timespec one[] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
	struct timespec chosen = has(how, "SET") ? (struct timespec){1000002000, 0} : (struct timespec){0, UTIME_NOW};
	struct stat status = {0};
	char words[2][32];
	one[!has(which, "atime")] = chosen;
	if (utimensat(AT_FDCWD, at(path), both, AT_SYMLINK_NOFOLLOW) < 0
		|| utimensat(AT_FDCWD, at(path), one, AT_SYMLINK_NOFOLLOW) < 0 || lstat(at(path), &status) < 0)
		return number(-1);
	for (int index = 0; index < 2; index++) {
		time_t seconds = index ? status.st_mtime : status.st_atime;
		snprintf(words[index], sizeof words[0], "%ld", (long)seconds);
		if (seconds > 1600000000 && seconds < 2147483648)
			strcpy(words[index], "now");
	}
	snprintf(text, sizeof text, "%s %s", words[0], words[1]);
	return text;
}

static const char *call_mtime(const char *path)
{
	struct stat status = {0};
	if (lstat(at(path), &status) < 0)
		return number(-1);
	if (status.st_mtime >= 1600000000 && status.st_mtime < 2147483648)
		return "now";
	return number(status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
}

static const char *call_access_time(const char *path, const char *how)
{
	struct timespec times[] = {{2000000000, 0}, {2000000000, 0}};
	struct stat status = {0};
	char byte;
	int fd = -1, reading = has(how, "read");
	if (utimensat(AT_FDCWD, at(path), times, 0) < 0)
		return number(-1);
	if (!has(how, "chmod") && (fd = open(at(path), reading ? O_RDONLY : O_WRONLY)) < 0)
		return number(-1);
	long result = fd < 0 ? chmod(at(path), 0640)
		: reading ? read(fd, &byte, 1)
		: has(how, "write") ? write(fd, "1", 1) : ftruncate(fd, 10);
	int error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	if (result < 0 || stat(at(path), &status) < 0)
		return number(-1);
	if ((status.st_atime == 2000000000 && !status.st_atim.tv_nsec) || (reading && labs(status.st_atime - time(NULL)) < 1000))
		return "kept";
	snprintf(text, sizeof text, "%ld after %s", status.st_atim.tv_sec * 1000000000 + status.st_atim.tv_nsec, how);
	return text;
}

static const char *call_status(const char *path, const char *what)
{
	struct stat status = {0};
	if (lstat(at(path), &status) < 0)
		return number(-1);
	return number(has(what, "size") ? (long)status.st_size : has(what, "mode") ? (long)status.st_mode : (long)status.st_nlink);
}

static const char *call_setxattr(const char *path, const char *name, long length, int fill, const char *how)
{
	int flag = has(how, "CREATE") ? XATTR_CREATE : has(how, "REPLACE") ? XATTR_REPLACE : 0;
	return done(setxattr(at(path), name, data(length, fill), length, flag));
}

static const char *call_getxattr(const char *path, const char *name)
{
	char *value = data(65536, 251);
	return bytes(value, getxattr(at(path), name, value, 65536));
}

static const char *call_listxattr(const char *path)
{
	char *list = data(65536, 251), *names[1000];
	ssize_t length = listxattr(at(path), list, 65536);
	int count = 0;
	if (length < 0)
		return number(-1);
	for (char *name = list; name < list + length; name += strlen(name) + 1)
		if (strlen(name) > 2 && (!strcmp(name + strlen(name) - 2, ".x") || !strcmp(name + strlen(name) - 2, ".y")))
			names[count++] = name;
	return listed(names, count);
}

static const char *call_removexattr(const char *path, const char *name) { return done(removexattr(at(path), name)); }

static const char *call_setacl(const char *path, const char *kind, const char *digits)
{
	const int tags[] = {1, 2, 4, 16, 32};
	char value[44] = {2}, name[64];
	for (int index = 0; index < 5; index++) {
		uint16_t entry[] = {tags[index], digits[index] - '0'};
		uint32_t who = index == 1 ? 1000 : ~0u;
		memcpy(value + 4 + 8 * index, entry, 4);
		memcpy(value + 8 + 8 * index, &who, 4);
	}
	snprintf(name, sizeof name, "system.posix_acl_%s", kind);
	return done(setxattr(at(path), name, value, sizeof value, 0));
}

static const char *call_flock(int slot, const char *how)
{
	return done(flock(slots[slot], (has(how, "SH") ? LOCK_SH : has(how, "EX") ? LOCK_EX : LOCK_UN) | LOCK_NB));
}

static const char *call_lock(int slot, const char *owner, const char *how, long offset, long length)
{
	short kind = has(how, "RDLCK") ? F_RDLCK : has(how, "WRLCK") ? F_WRLCK : F_UNLCK;
	struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = offset, .l_len = length};
	return done(fcntl(slots[slot], has(owner, "OFD") ? F_OFD_SETLK : F_SETLK, &range));
}

static const char *call_fsync(int slot) { return done(fsync(slots[slot])); }

static const char *call_fdatasync(int slot) { return done(fdatasync(slots[slot])); }

static const char *call_syncfs(int slot) { return done(syncfs(slots[slot])); }

static const char *call_name_max(const char *path)
{
	struct statvfs figures = {0};
	int fd = open(at(path), O_CREAT | O_WRONLY, 0644);
	if (fd < 0 || close(fd) < 0 || statvfs(root, &figures) < 0)
		return number(-1);
	if (figures.f_namemax >= strlen(path))
		return "right";
	snprintf(text, sizeof text, "a name of %zu bytes, but f_namemax is %lu", strlen(path), figures.f_namemax);
	return text;
}

static const char *call_used(const char *path)
{
	struct statvfs before = {0}, after = {0};
	char *noise = malloc(PART);
	statvfs(root, &before);
	int fd = open(at(path), O_CREAT | O_WRONLY, 0644);
	for (int index = 0; index < 32 * PART; index++) {
		noise[index % PART] = random();
		if (index % PART == PART - 1 && write(fd, noise, PART) != PART)
			return number(-1);
	}
	if (fsync(fd) < 0 || syncfs(fd) < 0 || close(fd) < 0 || statvfs(root, &after) < 0 || truncate(at(path), 0) < 0)
		return number(-1);
	long less = before.f_bfree * before.f_frsize - after.f_bfree * after.f_frsize;
	return less >= 16 * PART ? "less is free" : "as much is free as before";
}

static const char *call_fill(long leave)
{
	const long lengths[] = {1 << 20, PART, 4096, 512, 1};
	int fd = open(at("filler"), O_CREAT | O_WRONLY | O_APPEND, 0644);
	for (int index = 0; index < 5; index++)
		while (write(fd, data(lengths[index], 251), lengths[index]) == lengths[index] && lseek(fd, 0, SEEK_END) <= 1 << 30)
			;
	off_t size = lseek(fd, 0, SEEK_END);
	if (size > 1 << 30)
		return truncate(at("filler"), 0), close(fd), "EFBIG";
	return done(ftruncate(fd, size > leave ? size - leave : 0) < 0 ? -1 : close(fd));
}

/* The content of a file. Of one above 1 MiB, parts: around 2 and 4 GiB, and its begin and end. */
static const char *content_of(int fd, off_t size)
{
	const off_t starts[] = {0, (2L << 30) - PART / 2, (4L << 30) - PART / 2, size - PART};
	char *buffer = data(4 * PART + size % (1 << 20) + (1 << 20), 251);
	ssize_t count = 0;
	if (size <= 1 << 20)
		return bytes(buffer, pread(fd, buffer, size + 1, 0));
	off_t last = -1;
	for (int turn = 0; turn < 4; turn++) {
		off_t next = -1;
		for (int index = 0; index < 4; index++)
			if (starts[index] > last && (next < 0 || starts[index] < next))
				next = starts[index];
		if (next < 0)
			break;
		ssize_t part = pread(fd, buffer + count, PART, last = next);
		count += part > 0 ? part : 0;
	}
	return bytes(buffer, count);
}

/* A part of the state of a path, or of the file of a slot. */
static const char *state(const char *path, const char *part)
{
	struct stat status = {0};
	int slot = -1, fd;
	if (sscanf(path, "slot %d", &slot) == 1 ? fstat(slots[slot], &status) : lstat(at(path), &status))
		return number(-1);
	if (!strcmp(part, "kind"))
		return S_ISLNK(status.st_mode) ? "link" : S_ISDIR(status.st_mode) ? "directory" : "file";
	if (!strcmp(part, "links"))
		return number(status.st_nlink);
	if (!strcmp(part, "size"))
		return number(status.st_size);
	if (!strcmp(part, "target"))
		return call_readlink(path);
	if (!strcmp(part, "names"))
		return call_readdir(path);
	if (!strcmp(part, "mtime"))
		return call_mtime(path);
	if (!strcmp(part, "content")) {
		if ((fd = slot < 0 ? open(at(path), O_RDONLY) : slots[slot]) < 0)
			return number(-1);
		content_of(fd, status.st_size);
		if (slot < 0)
			close(fd);
		return text;
	}
	if (!strncmp(part, "acl ", 4)) {
		char name[64];
		snprintf(name, sizeof name, "system.posix_acl_%s", part + 4);
		return call_getxattr(path, name);
	}
	if (!strcmp(part, "mode"))
		snprintf(text, sizeof text, "%o", status.st_mode & 07777);
	else if (!strcmp(part, "owner"))
		snprintf(text, sizeof text, "%d:%d", status.st_uid, status.st_gid);
	else
		return call_getxattr(path, part);
	return text;
}

static void begin(const char *directory)
{
	snprintf(root, sizeof root, "%s/counterexample-%d", directory, getpid());
	umask(022);
	if (mkdir(root, 0777) < 0 || chmod(root, 0777) < 0) {
		perror(root);
		exit(2);
	}
}
