/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/image/oci-tree.h"
#include "test.h"

static Fault fault;
static OciTree *tree;

static void begin(void) {
        fault = (Fault) {};
        tree = oci_tree_free(tree);
        assert_ok(oci_tree_new(MIB(16), &tree, &fault));
        assert_ok(oci_tree_begin_layer(tree));
}

static int add(OciType type, const char *path, const char *target) {
        const OciEntry e = { type, path, target };

        fault = (Fault) {};
        return oci_tree_add(tree, &e);
}

static void next_layer(void) {
        assert_ok(oci_tree_begin_layer(tree));
}

/* Of each entry that is left "LAYER.ENTRY=name=name ", then of each directory without one "+name ". */
static const char *left(size_t n_layers, size_t n_entries) {
        static char text[16384];
        char path[OCI_PATH_SIZE];
        size_t n = 0;

        *text = 0;
        for (size_t l = 0; l < n_layers; l++)
                for (size_t e = 0; e < n_entries; e++) {
                        OciFile *f = oci_tree_find(tree, l, e);
                        if (!f)
                                continue;
                        n += (size_t) snprintf(text + n, sizeof(text) - n, "%zu.%zu", l, e);
                        for (OciNode *i = NULL; (i = oci_file_next_name(f, i));) {
                                oci_node_path(i, path);
                                n += (size_t) snprintf(text + n, sizeof(text) - n, "=%s", path);
                        }
                        n += (size_t) snprintf(text + n, sizeof(text) - n, " ");
                }
        for (OciNode *i = NULL; (i = oci_tree_next_implied(tree, i));) {
                oci_node_path(i, path);
                n += (size_t) snprintf(text + n, sizeof(text) - n, "+%s ", path);
        }
        return text;
}

TEST(an_upper_layer_replaces_and_adds) {
        begin();
        assert_ok(add(OCI_DIRECTORY, "./etc/", NULL));
        assert_ok(add(OCI_FILE, "./etc/a", NULL));
        assert_ok(add(OCI_FILE, "etc//./b", NULL));
        next_layer();
        assert_ok(add(OCI_FILE, "/etc/a", NULL));
        assert_ok(add(OCI_FILE, "etc/c", NULL));
        assert_streq(left(2, 9), "0.0=etc 0.2=etc/b 1.0=etc/a 1.1=etc/c ");
        next_layer();
        /* Its attributes, not what is in it. */
        assert_ok(add(OCI_DIRECTORY, "etc", NULL));
        assert_streq(left(3, 9), "0.2=etc/b 1.0=etc/a 1.1=etc/c 2.0=etc ");
        assert_ok(add(OCI_FILE, "etc", NULL));
        assert_streq(left(3, 9), "2.1=etc ");
        assert_ok(add(OCI_DIRECTORY, "etc", NULL));
        assert_streq(left(3, 9), "2.2=etc ");
}

TEST(directories_that_no_layer_has) {
        begin();
        assert_ok(add(OCI_FILE, "a/b/c", NULL));
        assert_streq(left(1, 9), "0.0=a/b/c +a +a/b ");
        next_layer();
        assert_ok(add(OCI_DIRECTORY, "a", NULL));
        assert_ok(oci_tree_make_directory(tree, "/srv/app"));
        assert_streq(left(2, 9), "0.0=a/b/c 1.0=a +srv +srv/app +a/b ");
}

TEST(whiteouts) {
        begin();
        assert_ok(add(OCI_FILE, "a/x", NULL));
        assert_ok(add(OCI_FILE, "a/y", NULL));
        assert_ok(add(OCI_FILE, "b/deep/z", NULL));
        next_layer();
        assert_ok(add(OCI_FILE, "a/.wh.x", NULL));
        assert_ok(add(OCI_FILE, "./.wh.b", NULL));
        assert_ok(add(OCI_FILE, ".wh.never-there", NULL));
        assert_ok(add(OCI_FILE, ".wh..wh.plnk", NULL));
        assert_streq(left(2, 9), "0.1=a/y +a ");
}

/* It speaks of the layers beneath, wherever in its own it stands. */
TEST(a_whiteout_spares_its_own_layer) {
        for (int last = 0; last < 2; last++) {
                begin();
                assert_ok(add(OCI_FILE, "a/lower", NULL));
                next_layer();
                if (!last)
                        assert_ok(add(OCI_FILE, ".wh.a", NULL));
                assert_ok(add(OCI_DIRECTORY, "a", NULL));
                assert_ok(add(OCI_FILE, "a/upper", NULL));
                if (last)
                        assert_ok(add(OCI_FILE, ".wh.a", NULL));
                assert_streq(left(2, 9), last ? "1.0=a 1.1=a/upper " : "1.1=a 1.2=a/upper ");
        }
}

TEST(opaque_directories) {
        for (int last = 0; last < 2; last++) {
                begin();
                assert_ok(add(OCI_DIRECTORY, "a", NULL));
                assert_ok(add(OCI_FILE, "a/lower", NULL));
                assert_ok(add(OCI_FILE, "a/sub/lower", NULL));
                assert_ok(add(OCI_FILE, "a/gone/lower", NULL));
                next_layer();
                if (!last)
                        assert_ok(add(OCI_FILE, "a/.wh..wh..opq", NULL));
                assert_ok(add(OCI_DIRECTORY, "a/sub", NULL));
                assert_ok(add(OCI_FILE, "a/sub/upper", NULL));
                if (last)
                        assert_ok(add(OCI_FILE, "a/.wh..wh..opq", NULL));
                assert_streq(left(2, 9), last ? "0.0=a 1.0=a/sub 1.1=a/sub/upper " : "0.0=a 1.1=a/sub 1.2=a/sub/upper ");
        }
        next_layer();
        assert_ok(add(OCI_FILE, ".wh..wh..opq", NULL));
        assert_ok(add(OCI_FILE, "new", NULL));
        assert_streq(left(3, 9), "2.1=new ");
}

TEST(hard_links) {
        begin();
        assert_ok(add(OCI_FILE, "bin/a", NULL));
        assert_ok(add(OCI_HARDLINK, "bin/b", "bin/a"));
        assert_ok(add(OCI_HARDLINK, "bin/a", "./bin/b"));
        assert_streq(left(1, 9), "0.0=bin/b=bin/a +bin ");
        next_layer();
        /* Across layers; and what it is a link to may go. */
        assert_ok(add(OCI_HARDLINK, "c", "/bin/b"));
        assert_ok(add(OCI_FILE, "bin/.wh.b", NULL));
        assert_ok(add(OCI_FILE, "bin/a", NULL));
        assert_streq(left(2, 9), "0.0=c 1.2=bin/a +bin ");
        assert_ok(add(OCI_SYMLINK, "s", "nowhere"));
        assert_ok(add(OCI_HARDLINK, "t", "s"));
        assert_streq(left(2, 9), "0.0=c 1.2=bin/a 1.3=t=s +bin ");

        assert_eq(add(OCI_HARDLINK, "d", "not/there"), -EBADMSG);
        assert_true(strstr(fault.text, "\"d\" is a hard link to \"not/there\", which is not there"));
        assert_eq(add(OCI_HARDLINK, "d", "bin"), -EBADMSG);
        assert_eq(add(OCI_HARDLINK, "d", "../etc/shadow"), -EBADMSG);
        assert_eq(add(OCI_HARDLINK, "d", NULL), -EBADMSG);
        assert_eq(add(OCI_HARDLINK, "bin", "bin/a"), -EBADMSG);
}

/* As programs in the root would: from its top, never above it. */
TEST(symbolic_links_on_the_way) {
        begin();
        assert_ok(add(OCI_DIRECTORY, "usr/lib", NULL));
        assert_ok(add(OCI_SYMLINK, "lib", "usr/lib"));
        assert_ok(add(OCI_SYMLINK, "etc", "../../../../etc2"));
        assert_ok(add(OCI_SYMLINK, "usr/abs", "/usr/./lib/../lib/"));
        next_layer();
        assert_ok(add(OCI_FILE, "lib/a", NULL));
        assert_ok(add(OCI_FILE, "etc/passwd", NULL));
        assert_ok(add(OCI_FILE, "usr/abs/b", NULL));
        assert_ok(add(OCI_HARDLINK, "c", "lib/b"));
        assert_streq(left(2, 9), "0.0=usr/lib 0.1=lib 0.2=etc 0.3=usr/abs 1.0=usr/lib/a 1.1=etc2/passwd 1.2=c=usr/lib/b +etc2 +usr ");
        /* An entry for it replaces it. */
        assert_ok(add(OCI_DIRECTORY, "lib", NULL));
        assert_ok(add(OCI_FILE, "lib/c", NULL));
        assert_true(strstr(left(2, 9), "1.5=lib/c "));

        assert_ok(add(OCI_SYMLINK, "x", "y"));
        assert_ok(add(OCI_SYMLINK, "y", "x"));
        assert_eq(add(OCI_FILE, "x/z", NULL), -ELOOP);
        assert_ok(add(OCI_FILE, "file", NULL));
        assert_eq(add(OCI_FILE, "file/z", NULL), -ENOTDIR);
}

TEST(what_must_not_be_there) {
        begin();
        assert_ok(add(OCI_FILE, "dev/null", NULL));
        next_layer();
        assert_ok(add(OCI_NOTHING, "dev/null", NULL));
        assert_ok(add(OCI_NOTHING, "dev/zero", NULL));
        assert_streq(left(2, 9), "+dev ");
        assert_ok(add(OCI_NOTHING, "dev", NULL));
        assert_streq(left(2, 9), "");
}

TEST(hostile_names) {
        static const char *const out[] = { "..", "../x", "a/../../x", "/..", "a/.." };
        static const char *const bad_whiteouts[] = { ".wh.", ".wh..", ".wh...", "a/.wh..." };
        char name[300], path[6000] = "";

        begin();
        for (size_t i = 0; i < ELEMENTSOF(out); i++) {
                assert_eq(add(OCI_FILE, out[i], NULL), -EBADMSG);
                assert_true(strstr(fault.text, out[i]));
        }
        for (size_t i = 0; i < ELEMENTSOF(bad_whiteouts); i++)
                assert_eq(add(OCI_FILE, bad_whiteouts[i], NULL), -EBADMSG);
        assert_ok(add(OCI_DIRECTORY, "./", NULL));
        assert_ok(add(OCI_FILE, "/", NULL));

        memset(name, 'n', sizeof(name));
        name[255] = 0;
        assert_ok(add(OCI_FILE, name, NULL));
        name[255] = 'n';
        name[256] = 0;
        assert_eq(add(OCI_FILE, name, NULL), -ENAMETOOLONG);
        for (int i = 0; i < 2000; i++)
                strcat(path, "d/");
        assert_ok(add(OCI_DIRECTORY, path, NULL));
        /* Short names, but by a link into a place that is deep already. */
        path[3999] = 0;
        assert_ok(add(OCI_SYMLINK, "deep", path));
        path[190] = 0;
        char below[256] = "deep/";
        strcat(below, path);
        assert_eq(add(OCI_FILE, below, NULL), -ENAMETOOLONG);
        memset(path, 'x', 5000);
        path[5000] = 0;
        assert_eq(add(OCI_FILE, path, NULL), -ENAMETOOLONG);
        assert_eq(add(OCI_SYMLINK, "l", path), -ENAMETOOLONG);
}

/* Each makes as much of memory as its path is deep, until it is enough. */
TEST(memory_is_bounded) {
        char path[4096];
        int r = 0;

        begin();
        for (unsigned i = 0; r >= 0; i++) {
                size_t n = (size_t) sprintf(path, "%u", i);
                while (n < 4090)
                        n += (size_t) sprintf(path + n, "/d");
                r = add(OCI_DIRECTORY, path, NULL);
        }
        assert_eq(r, -EFBIG);
        tree = oci_tree_free(tree);
}
