package emulator

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/config"
)

var spannerKind = kind{
	name:             "spanner",
	hostEnv:          config.EnvEmulatorHost,
	component:        "cloud-spanner-emulator",
	file:             "bin/cloud_spanner_emulator/emulator_main",
	program:          spannerProgram,
	image:            "gcr.io/cloud-spanner-emulator/emulator:1.5.28",
	containerPorts:   []int{9010, 9020},
	containerCommand: []string{"./gateway_main", "--hostname", "0.0.0.0"},
	answers:          spannerAnswers,
}

// Spanner is a running Spanner emulator, as [StartSpanner] returns it. Its methods
// may be called from several goroutines. The zero value is not valid.
type Spanner struct {
	*Process
	// GRPC is the host:port for clients.
	GRPC string
	// REST is the base URL of the REST API, such as http://127.0.0.1:9020. It is
	// empty for an emulator named by SPANNER_EMULATOR_HOST.
	REST string
}

// ClientOptions returns the options with which a client connects to GRPC, the only
// field that they need. They take precedence over SPANNER_EMULATOR_HOST.
//
// A data client still collects its built-in metrics unless that variable is set; turn
// them off with DisableNativeMetrics in spanner.ClientConfig.
func (s *Spanner) ClientOptions() []option.ClientOption { return clientOptions(s.GRPC) }

// StartSpanner returns a Spanner emulator that answers requests; the package
// comment lists where it looks for one. ctx bounds the start and not the emulator's
// life, which ends with Close or with this process. A start may take a minute, and
// ten with a container image, which docker may have to pull.
//
// The error is [ErrNotFound] when there is no emulator to use or start. If an
// emulator does not start, the error has the end of its output.
func StartSpanner(ctx context.Context, opts ...Option) (*Spanner, error) {
	p, err := spannerKind.start(ctx, opts)
	if err != nil {
		return nil, err
	}
	s := &Spanner{Process: p, GRPC: p.hosts[0]}
	if len(p.hosts) > 1 {
		s.REST = "http://" + p.hosts[1]
	}
	return s, nil
}

// spannerProgram runs gateway_main, which serves REST and runs emulator_main for gRPC.
func spannerProgram(server string) (name string, args func(ports []int) []string, err error) {
	return filepath.Join(filepath.Dir(server), "gateway_main"), func(ports []int) []string {
		return []string{
			"--hostname", loopback, "--grpc_port", strconv.Itoa(ports[0]), "--http_port", strconv.Itoa(ports[1]),
			"--grpc_binary", server,
		}
	}, nil
}

// spannerAnswers probes the gRPC server and the REST server, if its address is known.
func spannerAnswers(ctx context.Context, hosts []string) error {
	err := probe(ctx, hosts[0], func(ctx context.Context, conn *grpc.ClientConn) error {
		request := &instancepb.ListInstanceConfigsRequest{Parent: defaultProject}
		_, err := instancepb.NewInstanceAdminClient(conn).ListInstanceConfigs(ctx, request)
		return err
	})
	if err == nil && len(hosts) > 1 {
		err = restAnswers(ctx, "http://"+hosts[1])
	}
	if err != nil {
		return fmt.Errorf("list instance configs: %w", err)
	}
	return nil
}

func restAnswers(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/"+defaultProject+"/instanceConfigs", nil)
	if err != nil {
		return err
	}
	req.Close = true // a kept connection would outlive the emulator
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("REST: %s", resp.Status)
	}
	return nil
}
