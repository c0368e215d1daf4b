/* A FUSE filesystem that shows a directory at another place, with at most one bug: mutant SOURCE TARGET [BUG].

   It speaks the protocol of /dev/fuse itself, so it takes a compiler and root, and no library. It serves until it is
   unmounted. Each bug is a test of `bug` at the place where a filesystem would have it. bugs.h lists them. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef FUSE_DIRECT_IO_ALLOW_MMAP
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#endif

enum bug {
	NONE,
#define BUG(identifier, name, class, words) identifier,
#include "bugs.h"
#undef BUG
};
static const char *const names[] = {
	"none",
#define BUG(identifier, name, class, words) name,
#include "bugs.h"
#undef BUG
};
static enum bug bug;
static int device;

#define THREADS 4
#define WRITE_MAX 131072
#define NAP 3000
#define BLOCK 4096
#define HIDDEN ".mutant-tmpfile"

/* What a request needs to know of who made it, and its arguments. */
struct request {
	const struct fuse_in_header *head;
	const void *arg;
};

/* A file as the kernel knows it. Its number is the address; that of the root is 1. */
struct node {
	struct node *next;
	dev_t dev;
	ino_t ino;
	uint64_t lookups;
	int fd;
	mode_t mode; /* of CHMOD_MEMORY, or 0 */
};

struct listing {
	DIR *dir;
	uint64_t count;
	struct dirent last;
};

#define BUCKETS 4096
static struct node root, *nodes[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct node *node_of(uint64_t id) { return id == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)id; }

/* A path to what a descriptor is open on. */
static const char *by_fd(int fd)
{
	static __thread char paths[4][40];
	static __thread unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof paths[0], "/proc/self/fd/%d", fd);
	return path;
}

static void reply(const struct request *request, int error, const void *data, size_t size)
{
	struct fuse_out_header head = {sizeof head + (error ? 0 : size), -error, request->head->unique};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)data, error ? 0 : size}};
	if (bug == FULL_EIO && error == ENOSPC)
		head.error = -EIO;
	if (writev(device, parts, 2) < 0 && errno != ENOENT && errno != ENODEV)
		perror("mutant: reply");
}

static void done(const struct request *request, int result) { reply(request, result < 0 ? errno : 0, NULL, 0); }

/* -- files ------------------------------------------------------------------------------------------------------- */

static void fill(struct fuse_attr *attr, const struct stat *st, const struct node *node)
{
	*attr = (struct fuse_attr){
		.ino = st->st_ino, .size = st->st_size, .blocks = st->st_blocks, .mode = st->st_mode, .nlink = st->st_nlink,
		.atime = st->st_atim.tv_sec, .atimensec = st->st_atim.tv_nsec, .mtime = st->st_mtim.tv_sec,
		.mtimensec = st->st_mtim.tv_nsec, .ctime = st->st_ctim.tv_sec, .ctimensec = st->st_ctim.tv_nsec,
		.uid = st->st_uid, .gid = st->st_gid, .rdev = st->st_rdev, .blksize = st->st_blksize};
	if (node && node->mode)
		attr->mode = (attr->mode & S_IFMT) | node->mode;
	if (bug == LINKS_ONE && S_ISREG(attr->mode) && attr->nlink)
		attr->nlink = 1;
	if (bug == SIZE_32)
		attr->size &= 0xffffffff;
}

/* Return the node of an open descriptor of O_PATH, which is closed if the node has one already. */
static struct node *known(int fd, const struct stat *st)
{
	struct node **bucket = &nodes[(st->st_ino * 31 + st->st_dev) % BUCKETS], *node;
	pthread_mutex_lock(&lock);
	for (node = *bucket; node; node = node->next)
		if (node->ino == st->st_ino && node->dev == st->st_dev && !(bug == LINK_NODES && S_ISREG(st->st_mode)))
			break;
	if (node) {
		close(fd);
	} else {
		node = calloc(1, sizeof *node);
		*node = (struct node){.next = *bucket, .dev = st->st_dev, .ino = st->st_ino, .fd = fd};
		*bucket = node;
	}
	node->lookups++;
	pthread_mutex_unlock(&lock);
	return node;
}

static void forget(uint64_t id, uint64_t lookups)
{
	struct node *node = node_of(id), **at;
	if (node == &root)
		return;
	pthread_mutex_lock(&lock);
	node->lookups -= lookups;
	if (!node->lookups) {
		for (at = &nodes[(node->ino * 31 + node->dev) % BUCKETS]; *at != node; at = &(*at)->next)
			;
		*at = node->next;
		close(node->fd);
		free(node);
	}
	pthread_mutex_unlock(&lock);
}

/* Seconds for which the kernel keeps attributes. What is wrong for a moment only must not be kept. */
static uint64_t seconds(void)
{
	return bug == RENAME_BOTH || bug == TRUNCATE_GAP || bug == CHMOD_GAP ? 0 : 1;
}

/* Fill the entry of a descriptor of O_PATH. */
static int enter(int fd, struct fuse_entry_out *out)
{
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	struct node *node = known(fd, &st);
	*out = (struct fuse_entry_out){.nodeid = (uintptr_t)node, .entry_valid = 1, .attr_valid = seconds()};
	fill(&out->attr, &st, node);
	return 0;
}

/* The name under which a directory with a bug has or gets this one. */
static const char *stored(int parent, const char *name)
{
	static __thread char buffers[4][256];
	static __thread unsigned next;
	if ((bug != CASE_FOLDED && bug != CASE_LOWER && bug != NAME_COMPOSED) || strlen(name) >= sizeof buffers[0])
		return name;
	char *result = buffers[next++ % 4], *accent;
	snprintf(result, sizeof buffers[0], "%s", name);
	if (bug == NAME_COMPOSED && (accent = strstr(result, "e\u0301"))) {
		memcpy(accent, "\u00e9", 2);
		memmove(accent + 2, accent + 3, strlen(accent + 3) + 1);
	}
	for (char *letter = result; bug == CASE_LOWER && *letter; letter++)
		*letter = *letter >= 'A' && *letter <= 'Z' ? *letter + 32 : *letter;
	if (bug == CASE_FOLDED && faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		DIR *dir = fdopendir(openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		struct dirent *entry;
		while (dir && (entry = readdir(dir)))
			if (!strcasecmp(entry->d_name, name))
				snprintf(result, sizeof buffers[0], "%s", entry->d_name);
		if (dir)
			closedir(dir);
	}
	return result;
}

static int find(int parent, const char *name) { return openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC); }

static void entered(const struct request *request, int fd)
{
	struct fuse_entry_out out;
	int result = enter(fd, &out);
	reply(request, result < 0 ? errno : 0, &out, sizeof out);
}

static int refused_name(const char *name)
{
	if (bug == NAME_LONG && strlen(name) > 250)
		return errno = ENAMETOOLONG;
	if (bug == NAME_UTF8 && strchr(name, 0xff))
		return errno = EILSEQ;
	return 0;
}

static void lookup(const struct request *request)
{
	int parent = node_of(request->head->nodeid)->fd;
	entered(request, find(parent, stored(parent, request->arg)));
}

static void attributes_of(const struct request *request, const struct node *node, int fd)
{
	struct fuse_attr_out out = {.attr_valid = seconds()};
	struct stat st;
	int result = fstat(fd, &st);
	if (!result)
		fill(&out.attr, &st, node);
	reply(request, result < 0 ? errno : 0, &out, sizeof out);
}

/* Change a size. A bug keeps the bytes behind the new end of the last file that shrank. */
static int resize(const struct node *node, uint64_t size)
{
	static struct { ino_t ino; off_t size; char bytes[512]; ssize_t length; } cut;
	static char head[1 << 20];
	struct stat st;
	int fd = open(by_fd(node->fd), O_RDWR | O_CLOEXEC), result = -1;
	if (fd < 0 || fstat(fd, &st) < 0)
		goto out;
	if (bug == TRUNCATE_32)
		size &= 0xffffffff;
	if (bug == TRUNCATE_OPEN && !size && st.st_size)
		size = 1;
	if (bug == TRUNCATE_STALE && (off_t)size < st.st_size) {
		cut.ino = st.st_ino;
		cut.size = size;
		cut.length = pread(fd, cut.bytes, sizeof cut.bytes, size);
	}
	if (bug == TRUNCATE_GAP && size && (off_t)size < st.st_size && size <= sizeof head) {
		if (pread(fd, head, size, 0) < 0 || ftruncate(fd, 0) < 0)
			goto out;
		usleep(NAP);
		if (pwrite(fd, head, size, 0) < 0)
			goto out;
	}
	result = ftruncate(fd, size);
	if (bug == TRUNCATE_STALE && cut.ino == st.st_ino && cut.size == st.st_size && (off_t)size > st.st_size) {
		size_t length = (off_t)size - st.st_size < cut.length ? (size_t)size - st.st_size : (size_t)cut.length;
		result = pwrite(fd, cut.bytes, length, cut.size) < 0 ? -1 : result;
	}
out:
	if (fd >= 0)
		close(fd);
	return result;
}

static struct timespec time_of(int given, int now, uint64_t second, uint32_t nanosecond)
{
	if (bug == UTIME_SECONDS)
		nanosecond = 0;
	if (bug == UTIME_32)
		second = (int64_t)(int32_t)second;
	return !given ? (struct timespec){0, UTIME_OMIT} : now ? (struct timespec){0, UTIME_NOW}
														  : (struct timespec){second, nanosecond};
}

static int change_mode(struct node *node, const struct stat *st, uint32_t mode)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
	mode &= 07777;
	if (bug == WRITE_SUID && st->st_mode & 06000 && mode == (st->st_mode & 07777 & ~06000))
		return 0;
	if (bug == CHMOD_SPECIAL)
		mode &= 0777;
	if (bug == CHMOD_MEMORY) {
		node->mode = mode;
		return 0;
	}
	if (bug == CHMOD_GAP && !chmod(by_fd(node->fd), 0))
		usleep(NAP);
	if (bug == MTIME_CHMOD)
		utimensat(AT_FDCWD, by_fd(node->fd), times, 0);
	return chmod(by_fd(node->fd), mode);
}

static int set(struct node *node, const struct fuse_setattr_in *in)
{
	struct stat st;
	if (fstat(node->fd, &st) < 0)
		return -1;
	if (in->valid & (FATTR_UID | FATTR_GID)) {
		uid_t uid = in->valid & FATTR_UID ? in->uid : (uid_t)-1;
		gid_t gid = in->valid & FATTR_GID && bug != CHOWN_GROUP ? in->gid : (gid_t)-1;
		if (fchownat(node->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			return -1;
	}
	if (bug == CHOWN_SUID && in->valid & (FATTR_UID | FATTR_GID) && st.st_mode & 06000)
		return chmod(by_fd(node->fd), st.st_mode & 07777);
	if (in->valid & FATTR_MODE && change_mode(node, &st, in->mode) < 0)
		return -1;
	if (in->valid & FATTR_SIZE && resize(node, in->size) < 0)
		return -1;
	if (in->valid & (FATTR_ATIME | FATTR_MTIME)) {
		struct timespec times[2] = {
			time_of(in->valid & FATTR_ATIME, in->valid & FATTR_ATIME_NOW, in->atime, in->atimensec),
			time_of(in->valid & FATTR_MTIME, in->valid & FATTR_MTIME_NOW, in->mtime, in->mtimensec)};
		if (bug == UTIME_ONE && (in->valid & (FATTR_ATIME | FATTR_MTIME)) != (FATTR_ATIME | FATTR_MTIME))
			return 0;
		if (bug == UTIME_PRESENT && in->valid & (FATTR_ATIME_NOW | FATTR_MTIME_NOW))
			return 0;
		if (bug == UTIME_SWAPPED) {
			struct timespec first = times[0];
			times[0] = times[1];
			times[1] = first;
		}
		if (utimensat(node->fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			return -1;
	}
	return 0;
}

static void setattr(const struct request *request)
{
	struct node *node = node_of(request->head->nodeid);
	if (set(node, request->arg) < 0)
		reply(request, errno, NULL, 0);
	else
		attributes_of(request, node, node->fd);
}

/* -- names ------------------------------------------------------------------------------------------------------- */

/* Act as who asks, with that umask: the filesystem below then sees to owners, groups and default ACLs. */
static void act_as(const struct request *request, uint32_t mask)
{
	umask(mask);
	setfsgid(request->head->gid);
	setfsuid(request->head->uid);
}

static void act_as_root(void)
{
	setfsuid(0);
	setfsgid(0);
}

/* What bugs do to a directory or file after its name was made. */
static void made(const struct request *request, int parent, const char *name, const struct timespec *before)
{
	struct stat st;
	struct timespec times[2] = {{0, UTIME_OMIT}, before[0]};
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (bug == MTIME_DIRECTORY)
		utimensat(AT_FDCWD, by_fd(parent), times, 0);
	if (bug == SETGID_DIRECTORY && S_ISREG(st.st_mode))
		fchownat(parent, name, -1, request->head->gid, AT_SYMLINK_NOFOLLOW);
	if (bug == CREATE_MODE && S_ISREG(st.st_mode))
		fchmodat(parent, name, 0644, 0);
	if (bug == MKDIR_MODE && S_ISDIR(st.st_mode))
		fchmodat(parent, name, (st.st_mode & 07777) | 0700, 0);
}

static struct timespec changed(int fd)
{
	struct stat st = {0};
	fstat(fd, &st);
	return st.st_mtim;
}

/* Make a name by mkdir, mknod or symlink, and reply with its entry. */
static void make(const struct request *request)
{
	int parent = node_of(request->head->nodeid)->fd, result = -1;
	const char *name = request->arg, *target = name + strlen(name) + 1;
	const struct fuse_mkdir_in *directory = request->arg;
	const struct fuse_mknod_in *node = request->arg;
	struct timespec before = changed(parent);
	char cut[60];

	if (request->head->opcode == FUSE_MKDIR)
		name = (const char *)(directory + 1);
	if (request->head->opcode == FUSE_MKNOD)
		name = (const char *)(node + 1);
	if (refused_name(name)) {
		reply(request, errno, NULL, 0);
		return;
	}
	name = stored(parent, name);
	switch (request->head->opcode) {
	case FUSE_MKDIR:
		act_as(request, directory->umask);
		result = mkdirat(parent, name, directory->mode);
		act_as_root();
		if (bug == FULL_MKDIR && result < 0 && errno == ENOSPC)
			close(openat(parent, name, O_CREAT | O_CLOEXEC, 0644));
		break;
	case FUSE_MKNOD:
		act_as(request, node->umask);
		result = mknodat(parent, name, node->mode, node->rdev);
		act_as_root();
		break;
	case FUSE_SYMLINK:
		snprintf(cut, sizeof cut, "%s", target);
		act_as(request, 0);
		result = symlinkat(bug == SYMLINK_CUT ? cut : target, parent, name);
		act_as_root();
	}
	if (result < 0) {
		reply(request, errno, NULL, 0);
		return;
	}
	made(request, parent, name, &before);
	entered(request, find(parent, name));
}

static void copy(int from, int to)
{
	char bytes[65536];
	ssize_t count;
	while ((count = read(from, bytes, sizeof bytes)) > 0)
		if (write(to, bytes, count) != count)
			break;
}

/* Make a new file with the contents of a node. */
static int copied(const struct node *node, int parent, const char *name)
{
	struct stat st;
	int from = open(by_fd(node->fd), O_RDONLY | O_CLOEXEC), to = -1;
	if (from >= 0 && !fstat(from, &st))
		to = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to >= 0) {
		copy(from, to);
		fchmod(to, st.st_mode & 07777);
		close(to);
	}
	if (from >= 0)
		close(from);
	return to < 0 ? -1 : 0;
}

static void link_node(const struct request *request)
{
	const struct fuse_link_in *in = request->arg;
	const char *name = (const char *)(in + 1);
	struct node *node = node_of(in->oldnodeid);
	int parent = node_of(request->head->nodeid)->fd, result;
	struct stat st = {0};
	fstat(node->fd, &st);
	name = stored(parent, name);
	if (bug == LINK_COPIES && S_ISREG(st.st_mode))
		result = copied(node, parent, name);
	else if (bug == TMPFILE_EMPTY && !st.st_nlink)
		result = mknodat(parent, name, S_IFREG | 0644, 0);
	else
		result = linkat(AT_FDCWD, by_fd(node->fd), parent, name, AT_SYMLINK_FOLLOW);
	if (result < 0)
		reply(request, errno, NULL, 0);
	else
		entered(request, find(parent, name));
}

static void unlink_name(const struct request *request)
{
	int parent = node_of(request->head->nodeid)->fd, fd;
	if (bug == UNLINK_TRUNCATES && (fd = openat(parent, request->arg, O_WRONLY | O_NOFOLLOW | O_CLOEXEC)) >= 0) {
		struct stat st;
		if (!fstat(fd, &st) && st.st_nlink == 1 && ftruncate(fd, 0) < 0)
			perror("mutant: unlink");
		close(fd);
	}
	done(request, unlinkat(parent, stored(parent, request->arg), 0));
}

/* Remove all names of a directory, if these are files. */
static void empty(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	while (dir && (entry = readdir(dir)))
		unlinkat(fd, entry->d_name, 0);
	if (dir)
		closedir(dir);
}

static void remove_directory(const struct request *request)
{
	int parent = node_of(request->head->nodeid)->fd;
	if (bug == RMDIR_FULL)
		empty(parent, request->arg);
	done(request, unlinkat(parent, stored(parent, request->arg), AT_REMOVEDIR));
}

static int rename_with_bugs(int from, const char *old, int to, const char *new, unsigned flags)
{
	struct stat st = {0}, target = {0};
	int fd, has_target;
	fstatat(from, old, &st, AT_SYMLINK_NOFOLLOW);
	has_target = !fstatat(to, new, &target, AT_SYMLINK_NOFOLLOW);
	if (bug == EXCHANGE_RENAMES && flags & RENAME_EXCHANGE)
		flags = 0;
	if (flags)
		return renameat2(from, old, to, new, flags);
	if (bug == RENAME_NONEMPTY && has_target && S_ISDIR(target.st_mode) && S_ISDIR(st.st_mode))
		empty(to, new);
	if (bug == RENAME_TRUNCATES && has_target && S_ISREG(target.st_mode) && !S_ISDIR(st.st_mode)
		&& (fd = openat(to, new, O_WRONLY | O_TRUNC | O_CLOEXEC)) >= 0)
		close(fd);
	if (bug == RENAME_BOTH && !has_target && S_ISREG(st.st_mode) && !linkat(from, old, to, new, 0)) {
		usleep(NAP);
		return unlinkat(from, old, 0);
	}
	if (bug == XATTR_RENAME && has_target && S_ISREG(st.st_mode) && (fd = openat(from, old, O_RDONLY | O_CLOEXEC)) >= 0) {
		fremovexattr(fd, "user.x");
		fremovexattr(fd, "user.y");
		close(fd);
	}
	if (bug == MTIME_RENAME && S_ISREG(st.st_mode))
		utimensat(from, old, NULL, AT_SYMLINK_NOFOLLOW);
	if (bug == RENAME_COPIES && S_ISREG(st.st_mode) && st.st_nlink > 1) {
		struct node node = {.fd = find(from, old)};
		unlinkat(to, new, 0);
		int result = copied(&node, to, new);
		close(node.fd);
		return result < 0 ? -1 : unlinkat(from, old, 0);
	}
	return renameat(from, old, to, new);
}

static void rename_name(const struct request *request)
{
	const struct fuse_rename_in *plain = request->arg;
	const struct fuse_rename2_in *in = request->arg;
	int extended = request->head->opcode == FUSE_RENAME2;
	const char *old = extended ? (const char *)(in + 1) : (const char *)(plain + 1), *new = old + strlen(old) + 1;
	int from = node_of(request->head->nodeid)->fd, to = node_of(plain->newdir)->fd;
	if (refused_name(new))
		return done(request, -1);
	old = stored(from, old);
	done(request, rename_with_bugs(from, old, to, stored(to, new), extended ? in->flags : 0));
}

static void read_link(const struct request *request)
{
	char target[4096];
	ssize_t length = readlinkat(node_of(request->head->nodeid)->fd, "", target, sizeof target);
	reply(request, length < 0 ? errno : 0, target, length < 0 ? 0 : length);
}

/* -- open files -------------------------------------------------------------------------------------------------- */

static uint32_t how_opened(void)
{
	return bug == WRITE_BLOCK ? FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES : 0;
}

static int flags_for(uint32_t flags)
{
	/* The kernel says where a write goes, also one through a mapping of a file that was opened for appending. */
	flags &= ~(O_CREAT | O_EXCL | O_NOCTTY | O_NOFOLLOW | O_DIRECT | O_APPEND);
	/* The kernel reads what it writes only a part of. */
	if ((flags & O_ACCMODE) == O_WRONLY)
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	if (bug == OSYNC_NOTHING)
		flags &= ~(O_SYNC | O_DSYNC);
	return flags | O_CLOEXEC;
}

/* Where files ended when they were opened for appending, by descriptor, and -1 for others. */
static off_t ends[65536];
/* Whether files were opened with O_SYNC or O_DSYNC. The kernel sends fsync after each of their writes. */
static char synchronous[65536];

static void remember(int fd, uint32_t flags)
{
	struct stat st;
	if (fd < 0 || fd >= 65536)
		return;
	ends[fd] = flags & O_APPEND && !fstat(fd, &st) ? st.st_size : -1;
	synchronous[fd] = !!(flags & (O_SYNC | O_DSYNC));
}

static void open_file(const struct request *request)
{
	const struct fuse_open_in *in = request->arg;
	int fd = open(by_fd(node_of(request->head->nodeid)->fd), flags_for(in->flags & ~O_TRUNC));
	struct fuse_open_out out = {.fh = fd, .open_flags = how_opened()};
	remember(fd, in->flags);
	reply(request, fd < 0 ? errno : 0, &out, sizeof out);
}

/* Open a new file, with a name or by O_TMPFILE. */
static void create(const struct request *request)
{
	const struct fuse_create_in *in = request->arg;
	int parent = node_of(request->head->nodeid)->fd;
	const char *name = stored(parent, (const char *)(in + 1));
	int temporary = request->head->opcode == FUSE_TMPFILE, fd = -1, result;
	int created = !temporary && faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
	struct { struct fuse_entry_out entry; struct fuse_open_out open; } out = {0};
	struct timespec before = changed(parent);

	act_as(request, in->umask);
	if (!temporary && !refused_name(name))
		fd = openat(parent, name, (flags_for(in->flags) | O_CREAT | (in->flags & O_EXCL)) & ~O_TRUNC, in->mode);
	if (temporary && bug != TMPFILE_SHOWN)
		fd = openat(parent, ".", (flags_for(in->flags) & ~O_TRUNC) | O_TMPFILE, in->mode);
	if (temporary && bug == TMPFILE_SHOWN)
		fd = openat(parent, HIDDEN, flags_for(in->flags & ~(O_TMPFILE | O_TRUNC)) | O_CREAT, in->mode);
	act_as_root();
	if (fd >= 0 && created)
		made(request, parent, name, &before);
	result = fd < 0 ? -1 : enter(open(by_fd(fd), O_PATH | O_CLOEXEC), &out.entry);
	out.open.fh = fd;
	out.open.open_flags = how_opened();
	remember(fd, in->flags);
	reply(request, result < 0 ? errno : 0, &out, sizeof out);
	if (result < 0 && fd >= 0)
		close(fd);
}

static void read_file(const struct request *request)
{
	const struct fuse_read_in *in = request->arg;
	char *data = malloc(in->size);
	ssize_t count = pread(in->fh, data, in->size, bug == READ_32 ? in->offset & 0xffffffff : in->offset);
	struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
	if (bug == READ_31 && count > 0 && in->offset > INT32_MAX)
		memset(data, 0, count);
	if (bug == MTIME_READ)
		futimens(in->fh, times);
	reply(request, count < 0 ? errno : 0, data, count < 0 ? 0 : count);
	free(data);
}

/* Read the block that a write begins in, wait, and write all back: two writes in one block lose one of them. */
static ssize_t write_block(int fd, const char *data, size_t size, off_t offset)
{
	char *whole = calloc(1, size + BLOCK);
	off_t start = offset / BLOCK * BLOCK;
	struct stat st;
	ssize_t count = pread(fd, whole, BLOCK, start);
	usleep(NAP);
	memcpy(whole + (offset - start), data, size);
	size_t length = offset - start + size;
	if (count >= 0 && length < (size_t)count)
		length = count;
	ssize_t written = fstat(fd, &st) < 0 ? -1 : pwrite(fd, whole, length, start);
	free(whole);
	return written < 0 ? -1 : (ssize_t)size;
}

static int only_zeros(const char *data, size_t size)
{
	return size && !data[0] && !memcmp(data, data + 1, size - 1);
}

static ssize_t write_with_bugs(int fd, const char *data, size_t size, off_t offset, uint32_t flags)
{
	struct stat st = {0};
	fstat(fd, &st);
	if (bug == WRITE_32)
		offset &= 0xffffffff;
	if (bug == WRITE_33)
		offset &= 0x1ffffffff;
	if (bug == WRITE_41)
		offset &= 0x1ffffffffff;
	if (bug == APPEND_OPENED && fd < 65536 && ends[fd] >= 0) {
		offset = ends[fd];
		ends[fd] += size;
	}
	if (bug == APPEND_PAGE && fd < 65536 && ends[fd] >= 0 && size > BLOCK)
		return pwrite(fd, data, BLOCK, offset) < 0 ? -1 : (ssize_t)size;
	if (bug == WRITE_64K && size > 65536)
		return pwrite(fd, data, 65536, offset) < 0 ? -1 : (ssize_t)size;
	if (bug == WRITE_EDGE && offset % BLOCK == BLOCK - 1 && size > 1)
		return pwrite(fd, data + 1, size - 1, offset + 1) < 0 ? -1 : (ssize_t)size;
	if (bug == WRITE_ZEROS && offset + (off_t)size <= st.st_size && only_zeros(data, size))
		return size;
	if (bug == GAP_GARBAGE && offset > st.st_size && st.st_size && pwrite(fd, "garbage", 1, st.st_size) < 0)
		return -1;
	if (bug == MAP_LOST && flags & FUSE_WRITE_CACHE)
		return size;
	if (bug == WRITE_BLOCK)
		return write_block(fd, data, size, offset);
	ssize_t count = pwrite(fd, data, size, offset);
	if (bug == MAP_PAGE && flags & FUSE_WRITE_CACHE && count > 0 && st.st_size % BLOCK)
		count = ftruncate(fd, (st.st_size / BLOCK + 1) * BLOCK) < 0 ? -1 : count;
	return count;
}

static void write_file(const struct request *request)
{
	const struct fuse_write_in *in = request->arg;
	struct stat st = {0};
	fstat(in->fh, &st);
	ssize_t count = write_with_bugs(in->fh, (const char *)(in + 1), in->size, in->offset, in->write_flags);
	struct fuse_write_out out = {.size = count};
	if (count < 0 && errno == ENOSPC) {
		if (bug == FULL_WRITE)
			out.size = count = in->size;
		if (bug == FULL_TRUNCATES && ftruncate(in->fh, 0) == 0)
			errno = ENOSPC;
	}
	if (count > 0 && count < in->size && bug == FULL_SHORT)
		out.size = in->size;
	if (bug == MTIME_KEPT) {
		struct timespec times[2] = {{0, UTIME_OMIT}, st.st_mtim};
		futimens(in->fh, times);
	}
	if (bug == ATIME_WRITE) {
		struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
		futimens(in->fh, times);
	}
	reply(request, count < 0 ? errno : 0, &out, sizeof out);
}

static void release(const struct request *request)
{
	const struct fuse_release_in *in = request->arg;
	/* Whoever holds a lock keeps it as long as a descriptor is open. */
	if (bug == FLOCK_KEPT && fcntl(in->fh, F_DUPFD_CLOEXEC, 0) < 0)
		perror("mutant: release");
	close(in->fh);
	reply(request, 0, NULL, 0);
}

static void sync_file(const struct request *request)
{
	const struct fuse_fsync_in *in = request->arg;
	int only_data = in->fsync_flags & FUSE_FSYNC_FDATASYNC;
	if (bug == OSYNC_NOTHING && in->fh < 65536 && synchronous[in->fh])
		return reply(request, 0, NULL, 0);
	if (bug == FSYNC_NOTHING && !only_data)
		reply(request, 0, NULL, 0);
	else if (bug == FDATASYNC_NOTHING && only_data)
		reply(request, 0, NULL, 0);
	else
		done(request, only_data ? fdatasync(in->fh) : fsync(in->fh));
}

static void allocate(const struct request *request)
{
	const struct fuse_fallocate_in *in = request->arg;
	struct stat st = {0};
	uint64_t offset = in->offset, length = in->length;
	uint32_t mode = in->mode;
	fstat(in->fh, &st);
	if (bug == ALLOCATE_32)
		offset &= 0xffffffff;
	if (bug == ZERO_NOTHING && mode & FALLOC_FL_ZERO_RANGE && offset + length <= (uint64_t)st.st_size)
		mode = FALLOC_FL_KEEP_SIZE;
	if (bug == ALLOCATE_NOTHING && !mode)
		mode = FALLOC_FL_KEEP_SIZE;
	if (bug == ALLOCATE_KEEPS_NOT && mode == FALLOC_FL_KEEP_SIZE)
		mode = 0;
	if (mode & FALLOC_FL_PUNCH_HOLE) {
		if (bug == PUNCH_NOTHING)
			return reply(request, 0, NULL, 0);
		if (bug == PUNCH_ROUNDS) {
			offset = offset / BLOCK * BLOCK;
			length = (in->offset + in->length + BLOCK - 1) / BLOCK * BLOCK - offset;
		}
	}
	int result = fallocate(in->fh, mode, offset, length);
	if (!result && bug == PUNCH_EXTENDS && mode & FALLOC_FL_PUNCH_HOLE && offset + length > (uint64_t)st.st_size)
		result = ftruncate(in->fh, offset + length);
	if (result < 0 && errno == ENOSPC) {
		/* What was allocated so far may have extended the file, which the kernel does not expect. */
		result = bug == FULL_ALLOCATE || ftruncate(in->fh, st.st_size) < 0 ? 0 : -1;
		errno = ENOSPC;
	}
	done(request, result);
}

static void seek(const struct request *request)
{
	const struct fuse_lseek_in *in = request->arg;
	off_t at = lseek(in->fh, bug == DATA_32 ? in->offset & 0xffffffff : in->offset, in->whence);
	struct fuse_lseek_out out = {.offset = at};
	if (at >= 0 && in->whence == SEEK_DATA && at > (off_t)in->offset) {
		if (bug == DATA_NONE)
			return reply(request, ENXIO, NULL, 0);
		if (bug == DATA_LATE)
			out.offset += BLOCK;
	}
	reply(request, at < 0 ? errno : 0, &out, sizeof out);
}

static void copy_range(const struct request *request)
{
	const struct fuse_copy_file_range_in *in = request->arg;
	off_t from = in->off_in, to = bug == COPY_OFFSET ? in->off_in : in->off_out;
	if (bug == COPY_32)
		to &= 0xffffffff;
	size_t length = in->len < 1 << 30 ? in->len : 1 << 30;
	ssize_t count = copy_file_range(in->fh_in, &from, in->fh_out, &to, bug == COPY_HALF ? (length + 1) / 2 : length, 0);
	struct fuse_write_out out = {.size = count};
	struct stat st;
	if (bug == COPY_HALF && count > 0 && !fstat(in->fh_in, &st)) {
		size_t all = (off_t)(in->off_in + length) > st.st_size ? st.st_size - in->off_in : length;
		out.size = all;
		if (!fstat(in->fh_out, &st) && st.st_size < (off_t)(in->off_out + all))
			count = ftruncate(in->fh_out, in->off_out + all) < 0 ? -1 : count;
	}
	reply(request, count < 0 ? errno : 0, &out, sizeof out);
}

/* Locks are asked for here only with a bug of locks. Without one, the kernel keeps them itself. */
static void lock_file(const struct request *request)
{
	const struct fuse_lk_in *in = request->arg;
	struct flock range = {.l_type = in->lk.type, .l_whence = SEEK_SET};
	if (bug == FLOCK_GRANTED || bug == POSIX_GRANTED) {
		struct fuse_lk_out out = {.lk = {.type = F_UNLCK}};
		return reply(request, 0, &out, request->head->opcode == FUSE_GETLK ? sizeof out : 0);
	}
	if (in->lk_flags & FUSE_LK_FLOCK) {
		int how = in->lk.type == F_UNLCK ? LOCK_UN : in->lk.type == F_RDLCK && bug != FLOCK_SHARED ? LOCK_SH : LOCK_EX;
		return done(request, bug == FLOCK_KEPT && how == LOCK_UN ? 0 : flock(in->fh, how | LOCK_NB));
	}
	done(request, fcntl(in->fh, F_OFD_SETLK, &range));
}

/* -- listings, attributes, figures ------------------------------------------------------------------------------- */

static void open_directory(const struct request *request)
{
	struct listing *listing = calloc(1, sizeof *listing);
	int fd = openat(node_of(request->head->nodeid)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	listing->dir = fd < 0 ? NULL : fdopendir(fd);
	struct fuse_open_out out = {.fh = (uintptr_t)listing};
	reply(request, listing->dir ? 0 : errno, &out, sizeof out);
}

/* Move a listing to a position that was given out. A position of LISTING_COUNTS is a number of names. */
static void move(struct listing *listing, uint64_t to)
{
	if (bug == LISTING_NO_SEEK && to)
		return;
	if (to && bug != LISTING_COUNTS) {
		seekdir(listing->dir, to);
		return;
	}
	rewinddir(listing->dir);
	for (listing->count = 0; listing->count < to && readdir(listing->dir); listing->count++)
		;
}

static size_t pack(char *buffer, size_t room, const struct dirent *entry, uint64_t next)
{
	size_t length = strlen(entry->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
	struct fuse_dirent *out = (struct fuse_dirent *)buffer;
	if (size > room)
		return 0;
	memset(buffer, 0, size);
	*out = (struct fuse_dirent){entry->d_ino, next, length, entry->d_type};
	if (bug == LISTING_TYPES && entry->d_type == DT_DIR)
		out->type = DT_REG;
	memcpy(out->name, entry->d_name, length);
	return size;
}

static void list(const struct request *request)
{
	const struct fuse_read_in *in = request->arg;
	struct listing *listing = (struct listing *)(uintptr_t)in->fh;
	char *buffer = malloc(in->size);
	size_t used = 0, size;
	struct dirent *entry, last = {0};
	if (bug == LISTING_REPEATS && in->offset && listing->last.d_name[0] != '.')
		used = pack(buffer, in->size, &listing->last, in->offset);
	move(listing, in->offset);
	if (bug == LISTING_SKIPS && in->offset)
		readdir(listing->dir);
	while ((bug != LISTING_ENDS || listing->count < 500) && (entry = readdir(listing->dir))) {
		/* The position of an entry is where the listing goes on after it. */
		uint64_t next = bug == LISTING_COUNTS ? listing->count + 1 : (uint64_t)entry->d_off;
		if (!(size = pack(buffer + used, in->size - used, entry, next)))
			break;
		used += size;
		/* An entry is shorter than its type, and may be the last one of its buffer. */
		memcpy(&last, entry, entry->d_reclen);
		listing->count++;
	}
	if (last.d_name[0])
		listing->last = last;
	reply(request, 0, buffer, used);
	free(buffer);
}

static void close_directory(const struct request *request)
{
	struct listing *listing = (struct listing *)(uintptr_t)((const struct fuse_release_in *)request->arg)->fh;
	closedir(listing->dir);
	free(listing);
	reply(request, 0, NULL, 0);
}

static void sync_directory(const struct request *request)
{
	struct listing *listing = (struct listing *)(uintptr_t)((const struct fuse_fsync_in *)request->arg)->fh;
	done(request, bug == FSYNCDIR_NOTHING ? 0 : fsync(dirfd(listing->dir)));
}

static void set_xattr(const struct request *request)
{
	const struct fuse_setxattr_in *in = request->arg;
	const char *name = (const char *)(in + 1), *value = name + strlen(name) + 1;
	const char *path = by_fd(node_of(request->head->nodeid)->fd);
	size_t size = in->size;
	int flags = in->flags;
	if ((bug == XATTR_TRUSTED && !strncmp(name, "trusted.", 8))
		|| (bug == ACL_DROPPED && !strcmp(name, "system.posix_acl_access"))
		|| (bug == ACL_DEFAULT && !strcmp(name, "system.posix_acl_default")))
		return reply(request, 0, NULL, 0);
	if (bug == XATTR_EMPTY && !size) {
		removexattr(path, name);
		return reply(request, 0, NULL, 0);
	}
	if ((bug == XATTR_CREATES && flags == XATTR_CREATE) || (bug == XATTR_REPLACES && flags == XATTR_REPLACE))
		flags = 0;
	if (bug == XATTR_CUT && size > 255 && !strncmp(name, "user.", 5))
		size = 255;
	if (bug == XATTR_GAP && !flags && !removexattr(path, name))
		usleep(NAP);
	char cut[201];
	if (bug == XATTR_LONG) {
		snprintf(cut, sizeof cut, "%s", name);
		name = cut;
	}
	int result = setxattr(path, name, value, size, flags);
	done(request, bug == XATTR_LARGE && result < 0 && (errno == ENOSPC || errno == E2BIG) ? 0 : result);
}

static void get_xattr(const struct request *request)
{
	const struct fuse_getxattr_in *in = request->arg;
	const char *path = by_fd(node_of(request->head->nodeid)->fd);
	char *value = malloc(in->size + 1);
	int listed = request->head->opcode == FUSE_LISTXATTR;
	ssize_t size = listed ? listxattr(path, value, in->size) : getxattr(path, (const char *)(in + 1), value, in->size);
	struct fuse_getxattr_out out = {.size = size};
	if (bug == XATTR_LIST && listed && in->size && size > 0)
		do
			size--;
		while (size && value[size - 1]);
	if (size >= 0 && !in->size)
		reply(request, 0, &out, sizeof out);
	else
		reply(request, size < 0 ? errno : 0, value, size < 0 ? 0 : size);
	free(value);
}

static void remove_xattr(const struct request *request)
{
	int result = removexattr(by_fd(node_of(request->head->nodeid)->fd), request->arg);
	done(request, bug == XATTR_REMOVE && result < 0 && errno == ENODATA ? 0 : result);
}

static void figures(const struct request *request)
{
	static struct statvfs first;
	struct statvfs st;
	int result = fstatvfs(root.fd, &st);
	if (!first.f_blocks)
		first = st;
	if (bug == STATFS_CONSTANT)
		st = first;
	struct fuse_statfs_out out = {{
		.blocks = st.f_blocks, .bfree = st.f_bfree, .bavail = st.f_bavail, .files = st.f_files, .ffree = st.f_ffree,
		.bsize = st.f_bsize, .namelen = bug == STATFS_NAME ? 100 : st.f_namemax, .frsize = st.f_frsize}};
	reply(request, result < 0 ? errno : 0, &out, sizeof out);
}

/* -- serving ----------------------------------------------------------------------------------------------------- */

static void begin(const struct request *request)
{
	const struct fuse_init_in *in = request->arg;
	uint64_t flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_DONT_MASK | FUSE_POSIX_ACL
		| FUSE_SETXATTR_EXT | FUSE_INIT_EXT | FUSE_DIRECT_IO_ALLOW_MMAP;
	if (bug == FLOCK_GRANTED || bug == FLOCK_KEPT || bug == FLOCK_SHARED)
		flags |= FUSE_FLOCK_LOCKS;
	if (bug == POSIX_GRANTED || bug == POSIX_WHOLE)
		flags |= FUSE_POSIX_LOCKS;
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = in->max_readahead,
		.flags = flags & in->flags, .flags2 = flags >> 32, .max_background = 16, .congestion_threshold = 12,
		.max_write = WRITE_MAX, .time_gran = 1};
	reply(request, 0, &out, sizeof out);
}

static void serve(const struct request *request)
{
	const struct node *node;
	const struct fuse_batch_forget_in *batch = request->arg;
	const struct fuse_forget_one *one = (const struct fuse_forget_one *)(batch + 1);
	switch (request->head->opcode) {
	case FUSE_INIT: return begin(request);
	case FUSE_LOOKUP: return lookup(request);
	case FUSE_FORGET: return forget(request->head->nodeid, ((const struct fuse_forget_in *)request->arg)->nlookup);
	case FUSE_BATCH_FORGET:
		for (uint32_t index = 0; index < batch->count; index++)
			forget(one[index].nodeid, one[index].nlookup);
		return;
	case FUSE_INTERRUPT: return;
	case FUSE_GETATTR: node = node_of(request->head->nodeid); return attributes_of(request, node, node->fd);
	case FUSE_SETATTR: return setattr(request);
	case FUSE_READLINK: return read_link(request);
	case FUSE_SYMLINK: case FUSE_MKNOD: case FUSE_MKDIR: return make(request);
	case FUSE_UNLINK: return unlink_name(request);
	case FUSE_RMDIR: return remove_directory(request);
	case FUSE_RENAME: case FUSE_RENAME2: return rename_name(request);
	case FUSE_LINK: return link_node(request);
	case FUSE_OPEN: return open_file(request);
	case FUSE_CREATE: case FUSE_TMPFILE: return create(request);
	case FUSE_READ: return read_file(request);
	case FUSE_WRITE: return write_file(request);
	case FUSE_FLUSH: return reply(request, 0, NULL, 0);
	case FUSE_RELEASE: return release(request);
	case FUSE_FSYNC: return sync_file(request);
	case FUSE_FALLOCATE: return allocate(request);
	case FUSE_LSEEK: return seek(request);
	case FUSE_COPY_FILE_RANGE: return copy_range(request);
	case FUSE_GETLK: case FUSE_SETLK: case FUSE_SETLKW: return lock_file(request);
	case FUSE_OPENDIR: return open_directory(request);
	case FUSE_READDIR: return list(request);
	case FUSE_RELEASEDIR: return close_directory(request);
	case FUSE_FSYNCDIR: return sync_directory(request);
	case FUSE_SETXATTR: return set_xattr(request);
	case FUSE_GETXATTR: case FUSE_LISTXATTR: return get_xattr(request);
	case FUSE_REMOVEXATTR: return remove_xattr(request);
	case FUSE_STATFS: return figures(request);
	case FUSE_DESTROY: return reply(request, 0, NULL, 0);
	default: return reply(request, ENOSYS, NULL, 0);
	}
}

static void *work(void *unused)
{
	char *buffer = malloc(WRITE_MAX + 4096);
	/* A umask of its own. */
	unshare(CLONE_FS);
	for (;;) {
		ssize_t count = read(device, buffer, WRITE_MAX + 4096);
		struct request request = {(const struct fuse_in_header *)buffer, buffer + sizeof(struct fuse_in_header)};
		if (count >= (ssize_t)sizeof(struct fuse_in_header))
			serve(&request);
		else if (count < 0 && errno != ENOENT && errno != EINTR && errno != EAGAIN)
			break;
	}
	return unused;
}

static int fail(const char *words)
{
	fprintf(stderr, "mutant: %s: %s\n", words, strerror(errno));
	return 1;
}

int main(int count, char **words)
{
	struct rlimit files;
	struct stat st;
	char options[128];
	pthread_t threads[THREADS];

	if (count < 3)
		return fprintf(stderr, "usage: mutant SOURCE TARGET [BUG]\n"), 2;
	while (count > 3 && strcmp(names[bug], words[3]))
		if (++bug == sizeof names / sizeof *names)
			return fprintf(stderr, "mutant: there is no bug %s\n", words[3]), 2;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	root.fd = open(words[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root.fd < 0 || fstat(root.fd, &st) < 0)
		return fail(words[1]);
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return fail("/dev/fuse");
	snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,default_permissions", device,
			 st.st_mode & S_IFMT);
	if (mount("mutant", words[2], "fuse.mutant", MS_NODEV, options) < 0)
		return fail(words[2]);
	for (int index = 0; index < THREADS; index++)
		pthread_create(&threads[index], NULL, work, NULL);
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	return 0;
}
