// Files of this machine as `unreliable:///path`, slow and failing at times, as remote ones are.
//
// UNRELIABLE_MILLISECONDS: how long each operation takes. UNRELIABLE_EVERY: one in so many of them, in
// an order that looks like chance and is the same each time, fails with UNAVAILABLE before it has
// changed anything (0: none).

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/filesystem/filesystem_interface.h"
#include "tensorflow/c/tf_status.h"

namespace {

const char kScheme[] = "unreliable";
const char kPrefix[] = "unreliable://";
std::atomic<unsigned long> operations{0};

std::string Local(const char* path) {
  std::string text(path);
  return text.rfind(kPrefix, 0) == 0 ? text.substr(sizeof(kPrefix) - 1) : text;
}

long Setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? 0 : atol(value);
}

void SetErrno(TF_Status* status, const std::string& what) {
  TF_Code code = errno == ENOENT   ? TF_NOT_FOUND
                 : errno == EEXIST ? TF_ALREADY_EXISTS
                 : errno == ENOSPC ? TF_RESOURCE_EXHAUSTED
                                   : TF_UNKNOWN;
  TF_SetStatus(status, code, (what + "; " + strerror(errno)).c_str());
}

// Every operation passes here first.
bool Reached(TF_Status* status) {
  usleep(1000 * Setting("UNRELIABLE_MILLISECONDS"));
  long every = Setting("UNRELIABLE_EVERY");
  unsigned long number = ++operations;
  unsigned long drawn = (number * 11400714819323198485ul) >> 40;  // Knuth's multiplicative hash
  if (every > 0 && drawn % every == 0) {
    std::string message = "the remote end is not there (operation " + std::to_string(number) + ")";
    TF_SetStatus(status, TF_UNAVAILABLE, message.c_str());
    return false;
  }
  TF_SetStatus(status, TF_OK, "");
  return true;
}

char* Copied(const std::string& text) {
  char* copy = static_cast<char*>(malloc(text.size() + 1));
  memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

int Returned(const std::vector<std::string>& names, char*** entries) {
  *entries = static_cast<char**>(malloc(sizeof(char*) * (names.empty() ? 1 : names.size())));
  for (size_t i = 0; i < names.size(); ++i) (*entries)[i] = Copied(names[i]);
  return static_cast<int>(names.size());
}

struct File {
  int descriptor;
  std::string path;
};

void ReadCleanup(TF_RandomAccessFile* file) {
  auto* own = static_cast<File*>(file->plugin_file);
  close(own->descriptor);
  delete own;
}

int64_t Read(const TF_RandomAccessFile* file, uint64_t offset, size_t n, char* buffer,
             TF_Status* status) {
  if (!Reached(status)) return -1;
  auto* own = static_cast<File*>(file->plugin_file);
  size_t have = 0;
  while (have < n) {
    ssize_t got = pread(own->descriptor, buffer + have, n - have, offset + have);
    if (got < 0) {
      SetErrno(status, own->path);
      return -1;
    }
    if (got == 0) {
      TF_SetStatus(status, TF_OUT_OF_RANGE, "end of file");
      break;
    }
    have += got;
  }
  return have;
}

void WriteCleanup(TF_WritableFile* file) {
  auto* own = static_cast<File*>(file->plugin_file);
  if (own->descriptor >= 0) close(own->descriptor);
  delete own;
}

void Append(const TF_WritableFile* file, const char* buffer, size_t n, TF_Status* status) {
  if (!Reached(status)) return;
  auto* own = static_cast<File*>(file->plugin_file);
  while (n > 0) {
    ssize_t put = write(own->descriptor, buffer, n);
    if (put < 0) return SetErrno(status, own->path);
    buffer += put;
    n -= put;
  }
}

int64_t Position(const TF_WritableFile* file, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
  return lseek(static_cast<File*>(file->plugin_file)->descriptor, 0, SEEK_CUR);
}

void Flush(const TF_WritableFile*, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void Close(const TF_WritableFile* file, TF_Status* status) {
  auto* own = static_cast<File*>(file->plugin_file);
  TF_SetStatus(status, TF_OK, "");
  if (own->descriptor >= 0 && close(own->descriptor) < 0) SetErrno(status, own->path);
  own->descriptor = -1;
}

void Init(TF_Filesystem*, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
void Cleanup(TF_Filesystem*) {}

int Open(const char* path, int flags, TF_Status* status) {
  if (!Reached(status)) return -1;
  int descriptor = open(Local(path).c_str(), flags, 0644);
  if (descriptor < 0) SetErrno(status, path);
  return descriptor;
}

void NewRandomAccessFile(const TF_Filesystem*, const char* path, TF_RandomAccessFile* file,
                         TF_Status* status) {
  int descriptor = Open(path, O_RDONLY, status);
  if (descriptor >= 0) file->plugin_file = new File{descriptor, path};
}

void NewWritableFile(const TF_Filesystem*, const char* path, TF_WritableFile* file,
                     TF_Status* status) {
  int descriptor = Open(path, O_WRONLY | O_CREAT | O_TRUNC, status);
  if (descriptor >= 0) file->plugin_file = new File{descriptor, path};
}

void NewAppendableFile(const TF_Filesystem*, const char* path, TF_WritableFile* file,
                       TF_Status* status) {
  int descriptor = Open(path, O_WRONLY | O_CREAT | O_APPEND, status);
  if (descriptor >= 0) file->plugin_file = new File{descriptor, path};
}

void CreateDir(const TF_Filesystem*, const char* path, TF_Status* status) {
  if (Reached(status) && mkdir(Local(path).c_str(), 0755) < 0) SetErrno(status, path);
}

// By one operation, as object stores do.
void RecursivelyCreateDir(const TF_Filesystem*, const char* path, TF_Status* status) {
  if (!Reached(status)) return;
  std::string local = Local(path);
  for (size_t end = 1; end != std::string::npos; ) {
    end = local.find('/', end + 1);
    if (mkdir(local.substr(0, end).c_str(), 0755) < 0 && errno != EEXIST) {
      return SetErrno(status, path);
    }
  }
}

void DeleteFile(const TF_Filesystem*, const char* path, TF_Status* status) {
  if (Reached(status) && unlink(Local(path).c_str()) < 0) SetErrno(status, path);
}

void DeleteDir(const TF_Filesystem*, const char* path, TF_Status* status) {
  if (Reached(status) && rmdir(Local(path).c_str()) < 0) SetErrno(status, path);
}

void RenameFile(const TF_Filesystem*, const char* source, const char* target, TF_Status* status) {
  if (Reached(status) && rename(Local(source).c_str(), Local(target).c_str()) < 0) {
    SetErrno(status, source);
  }
}

void PathExists(const TF_Filesystem*, const char* path, TF_Status* status) {
  if (Reached(status) && access(Local(path).c_str(), F_OK) < 0) SetErrno(status, path);
}

void Stat(const TF_Filesystem*, const char* path, TF_FileStatistics* stats, TF_Status* status) {
  struct stat found;
  if (!Reached(status)) return;
  if (stat(Local(path).c_str(), &found) < 0) return SetErrno(status, path);
  stats->length = found.st_size;
  stats->mtime_nsec = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
  stats->is_directory = S_ISDIR(found.st_mode);
}

bool IsDirectory(const TF_Filesystem* filesystem, const char* path, TF_Status* status) {
  TF_FileStatistics stats = {};
  Stat(filesystem, path, &stats, status);
  return TF_GetCode(status) == TF_OK && stats.is_directory;
}

int64_t GetFileSize(const TF_Filesystem* filesystem, const char* path, TF_Status* status) {
  TF_FileStatistics stats = {};
  Stat(filesystem, path, &stats, status);
  return stats.length;
}

char* TranslateName(const TF_Filesystem*, const char* uri) { return Copied(uri); }

int GetChildren(const TF_Filesystem*, const char* path, char*** entries, TF_Status* status) {
  if (!Reached(status)) return -1;
  DIR* folder = opendir(Local(path).c_str());
  if (folder == nullptr) {
    SetErrno(status, path);
    return -1;
  }
  std::vector<std::string> names;
  while (dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(folder);
  return Returned(names, entries);
}

int GetMatchingPaths(const TF_Filesystem*, const char* pattern, char*** entries,
                     TF_Status* status) {
  if (!Reached(status)) return -1;
  glob_t found = {};
  std::vector<std::string> names;
  if (glob(Local(pattern).c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      names.push_back(kPrefix + std::string(found.gl_pathv[i]));
    }
  }
  globfree(&found);
  return Returned(names, entries);
}

}  // namespace

extern "C" void TF_InitPlugin(TF_FilesystemPluginInfo* info) {
  info->plugin_memory_allocate = malloc;
  info->plugin_memory_free = free;
  info->num_schemes = 1;
  info->ops = static_cast<TF_FilesystemPluginOps*>(calloc(1, sizeof(TF_FilesystemPluginOps)));
  TF_SetFilesystemVersionMetadata(info->ops);
  info->ops->scheme = Copied(kScheme);
  auto* read = static_cast<TF_RandomAccessFileOps*>(calloc(1, TF_RANDOM_ACCESS_FILE_OPS_SIZE));
  read->cleanup = ReadCleanup;
  read->read = Read;
  info->ops->random_access_file_ops = read;
  auto* write = static_cast<TF_WritableFileOps*>(calloc(1, TF_WRITABLE_FILE_OPS_SIZE));
  write->cleanup = WriteCleanup;
  write->append = Append;
  write->tell = Position;  // codespell:ignore tell
  write->flush = Flush;
  write->sync = Flush;
  write->close = Close;
  info->ops->writable_file_ops = write;
  auto* files = static_cast<TF_FilesystemOps*>(calloc(1, TF_FILESYSTEM_OPS_SIZE));
  files->init = Init;
  files->cleanup = Cleanup;
  files->new_random_access_file = NewRandomAccessFile;
  files->new_writable_file = NewWritableFile;
  files->new_appendable_file = NewAppendableFile;
  files->create_dir = CreateDir;
  files->recursively_create_dir = RecursivelyCreateDir;
  files->delete_file = DeleteFile;
  files->delete_dir = DeleteDir;
  files->rename_file = RenameFile;
  files->path_exists = PathExists;
  files->stat = Stat;
  files->is_directory = IsDirectory;
  files->get_file_size = GetFileSize;
  files->translate_name = TranslateName;
  files->get_children = GetChildren;
  files->get_matching_paths = GetMatchingPaths;
  info->ops->filesystem_ops = files;
}
