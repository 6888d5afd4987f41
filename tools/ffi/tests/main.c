/* Calls every function of the header. Run by ../test.sh with an empty folder. */
#include "test.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(strlen(fs_version()) > 0 && !strcmp(fs_message(), ""));
    test_rows();
    test_transactions();
    test_commits();
    test_database(argv[1]);
    test_prepared(argv[1]);
    test_copies(argv[1]);
    test_indexes();
    test_values();
    test_misuse(argv[1]);
    puts("the tests in C have passed");
    return 0;
}
