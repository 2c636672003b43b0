// gVisor's TCP as a peer: serves echoes at a port of two addresses, on an Ethernet whose frames come and go by descriptor 3, one a message,
// until that has an end.
//
//	gvisor ADDRESS4 ADDRESS6 PORT
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic   = 1
	wire  = 3
	mtu   = 1500
	piece = 16 << 10
)

func must(what string, failed any) {
	switch failed := failed.(type) {
	case nil:
	default:
		fmt.Fprintln(os.Stderr, what+":", failed)
		os.Exit(1)
	}
}

// echo sends back what comes, and ends where the other end does.
func echo(connection *gonet.TCPConn) {
	defer connection.Close()
	if _, failed := io.CopyBuffer(struct{ io.Writer }{connection}, struct{ io.Reader }{connection}, make([]byte, piece)); failed == nil {
		connection.CloseWrite()
	}
}

func main() {
	if len(os.Args) != 4 {
		must("gvisor ADDRESS4 ADDRESS6 PORT", "three words are needed")
	}
	port, failed := strconv.ParseUint(os.Args[3], 10, 16)
	must("a port", failed)
	addresses := map[tcpip.NetworkProtocolNumber]tcpip.AddressWithPrefix{
		ipv4.ProtocolNumber: {Address: tcpip.AddrFromSlice(net.ParseIP(os.Args[1]).To4()), PrefixLen: 24},
		ipv6.ProtocolNumber: {Address: tcpip.AddrFromSlice(net.ParseIP(os.Args[2]).To16()), PrefixLen: 64},
	}
	link, failed := fdbased.New(&fdbased.Options{
		FDs:                []int{wire},
		MTU:                mtu,
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress([]byte{2, 0, 0, 0, 0, 99}),
		PacketDispatchMode: fdbased.RecvMMsg,
		ClosedFunc:         func(tcpip.Error) { os.Exit(0) },
	})
	must("frames", failed)
	network := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	selective := tcpip.TCPSACKEnabled(true)
	if refused := network.SetTransportProtocolOption(tcp.ProtocolNumber, &selective); refused != nil {
		must("SACK", refused)
	}
	if refused := network.CreateNIC(nic, link); refused != nil {
		must("an interface", refused)
	}
	network.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	for protocol, address := range addresses {
		whole := tcpip.ProtocolAddress{Protocol: protocol, AddressWithPrefix: address}
		if refused := network.AddProtocolAddress(nic, whole, stack.AddressProperties{}); refused != nil {
			must("an address", refused)
		}
		listener, failed := gonet.ListenTCP(network, tcpip.FullAddress{NIC: nic, Addr: address.Address, Port: uint16(port)}, protocol)
		must("a listener", failed)
		go func() {
			for {
				connection, failed := listener.Accept()
				must("a connection", failed)
				go echo(connection.(*gonet.TCPConn))
			}
		}()
	}
	fmt.Println("serves")
	select {}
}
